#include "aten/one_thread.h"

#include <ATen/Parallel.h>

// Torch's library brings these along; a torch that was built otherwise may not.
extern "C" {
// How many threads parallel regions of this thread have (OpenMP 5.0, 3.2.1 and 3.2.3).
__attribute__((weak)) void omp_set_num_threads(int count);
__attribute__((weak)) int omp_get_max_threads();
// How many threads MKL takes for calls from this thread; 0 for as many as for all others. Returns
// what was set before.
__attribute__((weak)) int MKL_Set_Num_Threads_Local(int count);
}

namespace torch_xla::aten {

bool OneThread::is_possible() {
  return omp_set_num_threads != nullptr && omp_get_max_threads != nullptr &&
         MKL_Set_Num_Threads_Local != nullptr;
}

OneThread::OneThread() {
  if (!is_possible()) return;
  at::get_num_threads();  // sets the number of a thread that is new to torch
  openmp_before_ = omp_get_max_threads();
  omp_set_num_threads(1);
  mkl_before_ = MKL_Set_Num_Threads_Local(1);
}

OneThread::~OneThread() {
  if (!is_possible()) return;
  MKL_Set_Num_Threads_Local(mkl_before_);
  omp_set_num_threads(openmp_before_);
}

}  // namespace torch_xla::aten
