#include "sharding/replication.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <span>
#include <unordered_map>

#include "sharding/wire.h"

namespace torch_xla::sharding {
namespace {

// Field numbers of OpenXLA's hlo.proto and xla_data.proto, as far as they are read here.
namespace field {
constexpr uint64_t kModule = 1;                            // of HloModuleProtoWithConfig
constexpr uint64_t kComputations = 3;                      // of HloModuleProto
constexpr uint64_t kInstructions = 2, kComputationId = 5;  // of HloComputationProto
// Of HloInstructionProto.
constexpr uint64_t kOpcode = 2, kShape = 3, kMetadata = 7, kCallTarget = 28, kId = 35,
                   kOperands = 36, kCalled = 38;
constexpr uint64_t kOpName = 2;                                          // of OpMetadata
constexpr uint64_t kElementType = 2, kDimensions = 3, kTupleShapes = 4;  // of ShapeProto
}  // namespace field

constexpr const char* kProgram = "an HLO program";

struct Instruction {
  int64_t id = 0;
  std::string_view opcode, shape, metadata, call_target;
  std::vector<int64_t> operands, called;
};

Instruction read_instruction(std::string_view bytes) {
  Instruction result;
  WireReader reader(bytes, kProgram);
  reader.fields([&](uint64_t number, uint64_t wire_type) {
    switch (number) {
      case field::kOpcode:
        result.opcode = reader.bytes();
        return;
      case field::kShape:
        result.shape = reader.bytes();
        return;
      case field::kMetadata:
        result.metadata = reader.bytes();
        return;
      case field::kCallTarget:
        result.call_target = reader.bytes();
        return;
      case field::kId:
        result.id = static_cast<int64_t>(reader.varint());
        return;
      case field::kOperands:
        reader.numbers(wire_type, result.operands);
        return;
      case field::kCalled:
        reader.numbers(wire_type, result.called);
        return;
      default:
        reader.skip(wire_type);
    }
  });
  return result;
}

// Bytes of an element by xla.PrimitiveType: bool, s8 to s64, u8 to u64, f16, f32, f64, ..., bf16,
// c64, c128. What is not listed has eight bits or fewer.
int64_t element_bytes(uint64_t type) {
  static constexpr std::array<int64_t, 19> kBytes = {1, 1, 1, 2, 4, 8, 1, 2, 4, 8,
                                                     2, 4, 8, 1, 1, 8, 2, 1, 16};
  return type < kBytes.size() ? kBytes[type] : 1;
}

struct Size {
  int64_t elements = 0;
  int64_t bytes = 0;
};

// Of an array, or of all arrays in a tuple, in order.
void add_sizes(std::string_view shape, std::vector<Size>& into) {
  uint64_t type = 0;
  std::vector<int64_t> dims;
  bool is_tuple = false;
  WireReader reader(shape, kProgram);
  reader.fields([&](uint64_t number, uint64_t wire_type) {
    switch (number) {
      case field::kElementType:
        type = reader.varint();
        return;
      case field::kDimensions:
        reader.numbers(wire_type, dims);
        return;
      case field::kTupleShapes:
        is_tuple = true;
        add_sizes(reader.bytes(), into);
        return;
      default:
        reader.skip(wire_type);
    }
  });
  if (is_tuple) return;
  int64_t elements = 1;
  for (int64_t dim : dims) elements *= dim;
  into.push_back({elements, elements * element_bytes(type)});
}

// Of each result of a gather: one for each operand, behind what it begins with.
std::vector<Size> gathered_sizes(const Instruction& gather) {
  std::vector<Size> sizes;
  add_sizes(gather.shape, sizes);
  const size_t results = gather.operands.size();
  if (sizes.size() > results) {
    sizes.erase(sizes.begin(), sizes.end() - static_cast<std::ptrdiff_t>(results));
  }
  return sizes;
}

std::string op_name(std::string_view metadata) {
  std::string name;
  WireReader reader(metadata, kProgram);
  reader.fields([&](uint64_t number, uint64_t wire_type) {
    if (number == field::kOpName) {
      name = reader.bytes();
    } else {
      reader.skip(wire_type);
    }
  });
  return name;
}

bool is_one_of(std::string_view text, std::span<const std::string_view> list) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

bool is_gather(const Instruction& instruction) {
  return instruction.opcode == "all-gather" || instruction.opcode == "all-gather-start";
}

// Operations whose elements are those of their first operand, or a part of them.
bool keeps_elements(const Instruction& instruction) {
  static constexpr std::string_view kSame[] = {
      "all-gather-done", "bitcast", "convert", "copy",          "copy-done",
      "copy-start",      "reshape", "slice",   "dynamic-slice", "optimization-barrier",
      "transpose"};
  return is_one_of(instruction.opcode, kSame);
}

// Operations that XLA cuts along some dimensions or none.
bool is_hard_to_cut(const Instruction& instruction) {
  static constexpr std::string_view kHard[] = {"cholesky", "fft", "sort", "topk",
                                               "triangular-solve"};
  if (is_one_of(instruction.opcode, kHard)) return true;
  // Products of matrices and convolutions by a library are what such an operation became since.
  return instruction.opcode == "custom-call" && !instruction.call_target.starts_with("__");
}

class Computation;
using Computations = std::unordered_map<int64_t, std::unique_ptr<const Computation>>;

class Computation {
 public:
  Computation(std::string_view bytes, const Computations& others) : others_(others) {
    WireReader reader(bytes, kProgram);
    reader.fields([&](uint64_t number, uint64_t wire_type) {
      if (number == field::kInstructions) {
        instructions_.push_back(read_instruction(reader.bytes()));
      } else if (number == field::kComputationId) {
        id_ = static_cast<int64_t>(reader.varint());
      } else {
        reader.skip(wire_type);
      }
    });
    for (const Instruction& instruction : instructions_) {
      by_id_[instruction.id] = &instruction;
      for (int64_t operand : instruction.operands) users_[operand].push_back(&instruction);
    }
  }

  int64_t id() const { return id_; }

  void find(int64_t num_partitions, int64_t least_bytes,
            std::map<std::string, int64_t>& found) const {
    for (const Instruction& gather : instructions_) {
      if (!is_gather(gather)) continue;
      std::string operation = op_name(gather.metadata);
      // That was asked for in so many words.
      if (operation.starts_with("xla::sharding_constraint")) continue;
      const Instruction* hard = hard_user(gather);
      if (hard) operation = op_name(hard->metadata);
      const std::vector<Size> sizes = gathered_sizes(gather);
      for (size_t i = 0; i < sizes.size(); ++i) {
        if (sizes[i].bytes < least_bytes) continue;
        const Origin origin = origin_of(gather, i);
        if (!hard && (origin.ratio != num_partitions || origin.is_given)) continue;
        int64_t& largest = found[operation];
        largest = std::max(largest, sizes[i].bytes);
      }
    }
  }

 private:
  struct Origin {
    int64_t ratio = 1;      // of its part on a device that each got
    bool is_given = false;  // a parameter, of the program or of a loop
  };

  // The same for code that is called, if it does nothing else.
  bool is_passing(const Instruction& instruction) const {
    if (keeps_elements(instruction)) return true;
    if (instruction.operands.size() != 1 || instruction.called.size() != 1) return false;
    const auto code = others_.find(instruction.called.front());
    if (code == others_.end()) return false;
    const auto& inside = code->second->instructions_;
    return std::all_of(inside.begin(), inside.end(), [&](const Instruction& each) {
      return each.opcode == "parameter" || code->second->is_passing(each);
    });
  }

  // Of a gather's operand number `i`.
  Origin origin_of(const Instruction& gather, size_t i) const {
    Origin origin;
    const Instruction* at = &gather;
    for (; is_gather(*at) || is_passing(*at); i = 0) {
      if (i >= at->operands.size()) return origin;
      const auto from = by_id_.find(at->operands[i]);
      if (from == by_id_.end()) return origin;
      if (is_gather(*at)) {
        const std::vector<Size> whole = gathered_sizes(*at);
        std::vector<Size> part;
        add_sizes(from->second->shape, part);
        if (i >= whole.size() || part.size() != 1 || part[0].elements == 0) return origin;
        origin.ratio *= whole[i].elements / part[0].elements;
      }
      at = from->second;
    }
    origin.is_given = at->opcode == "parameter" || at->opcode == "get-tuple-element";
    return origin;
  }

  // What uses the elements and cannot be cut; null if nothing does.
  const Instruction* hard_user(const Instruction& instruction) const {
    const auto users = users_.find(instruction.id);
    if (users == users_.end()) return nullptr;
    for (const Instruction* user : users->second) {
      if (is_hard_to_cut(*user)) return user;
      if (!is_passing(*user)) continue;
      if (const Instruction* hard = hard_user(*user)) return hard;
    }
    return nullptr;
  }

  const Computations& others_;
  int64_t id_ = 0;
  std::vector<Instruction> instructions_;
  std::unordered_map<int64_t, const Instruction*> by_id_;
  std::unordered_map<int64_t, std::vector<const Instruction*>> users_;
};

}  // namespace

std::vector<Replication> replications(std::string_view program, int64_t num_partitions,
                                      int64_t least_bytes) {
  Computations computations;
  WireReader config(program, kProgram);
  config.fields([&](uint64_t number, uint64_t wire_type) {
    if (number != field::kModule) return config.skip(wire_type);
    WireReader module(config.bytes(), kProgram);
    module.fields([&](uint64_t part, uint64_t type) {
      if (part != field::kComputations) return module.skip(type);
      auto one = std::make_unique<const Computation>(module.bytes(), computations);
      computations[one->id()] = std::move(one);
    });
  });
  std::map<std::string, int64_t> found;
  for (const auto& [id, computation] : computations) {
    computation->find(num_partitions, least_bytes, found);
  }
  std::vector<Replication> result;
  for (const auto& [operation, bytes] : found) result.push_back({operation, bytes});
  std::stable_sort(result.begin(), result.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  return result;
}

}  // namespace torch_xla::sharding
