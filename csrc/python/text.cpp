#include "python/text.h"

#include <cinttypes>
#include <cstdio>

namespace torch_xla::python {

std::string hex(const ir::Hash128& hash) {
  char text[33];
  std::snprintf(text, sizeof text, "%016" PRIx64 "%016" PRIx64, hash.high, hash.low);
  return text;
}

}  // namespace torch_xla::python
