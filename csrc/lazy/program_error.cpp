#include "lazy/program_error.h"

#include <c10/util/Exception.h>

#include <string>

namespace torch_xla::lazy {

void throw_as_cpu_does(const pjrt::Error& error) {
  std::string text = error.what();
  if (const size_t at = text.find(kLinAlgError); at != text.npos) {
    text.erase(at, kLinAlgError.size());
    TORCH_CHECK_LINALG(false, text);
  }
  throw error;
}

}  // namespace torch_xla::lazy
