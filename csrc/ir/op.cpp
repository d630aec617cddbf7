#include "ir/op.h"

#include "ir/hash.h"

namespace torch_xla::ir {

Op::Op(const char* name, LowerFunction lower)
    : name(name), lower(lower), hash(hash_text(name)) {}

}  // namespace torch_xla::ir
