#include "ir/op.h"

#include <map>
#include <mutex>
#include <string>

#include "ir/hash.h"

namespace torch_xla::ir {
namespace {

// How many ops of this name there were before. Several may share one (forms of an operator that
// lower differently), and their nodes must not be taken for each other. Ops are constants, made in
// the same order in every process.
uint64_t ordinal(const char* name) {
  static std::mutex mutex;
  static auto* counts = new std::map<std::string, uint64_t>;
  std::lock_guard lock(mutex);
  return (*counts)[name]++;
}

}  // namespace

Op::Op(const char* name, LowerFunction lower, bool updates)
    : name(name), lower(lower), updates(updates), hash(mix(hash_text(name), ordinal(name))) {}

}  // namespace torch_xla::ir
