#include "lazy/host_function.h"

#include "lazy/runtime.h"
#include "pjrt/error.h"

namespace torch_xla::lazy {

bool register_host_function(std::string_view name, pjrt::FfiEntry entry) {
  Runtime& runtime = Runtime::get();
  if (!runtime.is_cpu()) return false;
  try {
    pjrt::register_ffi_handler(*runtime.client().plugin(), name, "Host", entry);
    return true;
  } catch (const pjrt::Error&) {
    return false;
  }
}

}  // namespace torch_xla::lazy
