#pragma once

namespace torch_xla::aten {

// While one lives, torch's kernels that run on this thread start no others: OpenMP's and MKL's
// would come on top of the plugin's, which share the work of a program among themselves already.
class OneThread {
 public:
  // Whether this torch computes with OpenMP and MKL. Otherwise one of these does nothing.
  static bool is_possible();

  OneThread();
  ~OneThread();
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int openmp_before_ = 0;
  int mkl_before_ = 0;
};

}  // namespace torch_xla::aten
