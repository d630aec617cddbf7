#include "aten/elementwise.h"

#include <string_view>

namespace torch_xla::aten {

void check_domain(const char* name, Domain domain, at::ScalarType dtype) {
  const bool complex = at::isComplexType(dtype), real = at::isFloatingType(dtype);
  bool defined = true;
  switch (domain) {
    case Domain::kAny:
      break;
    case Domain::kNotComplex:
      defined = !complex;
      break;
    case Domain::kFloat:
      defined = real;
      break;
    case Domain::kFloatOrComplex:
      defined = real || complex;
      break;
    case Domain::kInteger:
      defined = at::isIntegralType(dtype, true);
      break;
  }
  std::string_view shown = name;
  if (shown.starts_with("aten::")) shown.remove_prefix(6);
  TORCH_CHECK_NOT_IMPLEMENTED(defined, '"', shown, "\" not implemented for '", c10::toString(dtype),
                              "'");
}

}  // namespace torch_xla::aten
