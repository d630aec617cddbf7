#include "sharding/replication.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace torch_xla::sharding {
namespace {

// Just as much of the wire format as the messages below take.
std::string number(int field, uint64_t value) {
  std::string bytes;
  for (uint64_t rest : {static_cast<uint64_t>(field) << 3, value}) {
    for (; rest >= 0x80; rest >>= 7) bytes += static_cast<char>(rest | 0x80);
    bytes += static_cast<char>(rest);
  }
  return bytes;
}

std::string message(int field, const std::string& content) {
  std::string tag = number(0, content.size()).substr(1);
  std::string key;
  for (uint64_t rest = static_cast<uint64_t>(field) << 3 | 2; rest; rest >>= 7) {
    key += static_cast<char>(rest >= 0x80 ? rest | 0x80 : rest);
  }
  return key + tag + content;
}

std::string shape(uint64_t elements) { return number(2, 11) + message(3, {char(elements)}); }

std::string instruction(int id, const std::string& opcode, uint64_t elements, int operand = 0,
                        const std::string& op_name = "", const std::string& target = "") {
  std::string bytes = message(2, opcode) + message(3, shape(elements)) + number(35, id);
  if (operand) bytes += message(36, {char(operand)});
  if (!op_name.empty()) bytes += message(7, message(2, op_name));
  if (!target.empty()) bytes += message(28, target);
  return message(2, bytes);
}

std::string program(const std::string& instructions) {
  return message(1, message(3, instructions));
}

TEST(Replication, OfWhatWasComputedInParts) {
  const std::string computed = instruction(1, "add", 8) + instruction(2, "copy", 8, 1) +
                               instruction(3, "all-gather", 64, 2, "aten::mm a.py:1");
  const auto found = replications(program(computed), 8, 256);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].operation, "aten::mm a.py:1");
  EXPECT_EQ(found[0].bytes, 256);
  EXPECT_TRUE(replications(program(computed), 8, 257).empty());
  EXPECT_TRUE(replications(program(computed), 16, 256).empty());  // not whole yet
}

TEST(Replication, InTwoSteps) {
  const std::string twice = instruction(1, "add", 8) +
                            instruction(2, "all-gather", 32, 1, "first") +
                            instruction(3, "all-gather", 64, 2, "second");
  const auto found = replications(program(twice), 8, 1);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].operation, "second");
}

TEST(Replication, NotOfParametersButForWhatCannotBeCut) {
  const std::string gathered = instruction(1, "parameter", 8) + instruction(2, "convert", 8, 1) +
                               instruction(3, "all-gather", 64, 2, "for");
  EXPECT_TRUE(replications(program(gathered + instruction(4, "dot", 8, 3)), 8, 1).empty());
  EXPECT_EQ(replications(program(gathered + instruction(4, "sort", 64, 3)), 8, 1).size(), 1u);
  // Not whole on each device, and yet of no use.
  EXPECT_EQ(replications(program(gathered + instruction(4, "sort", 64, 3)), 16, 1).size(), 1u);
  const auto call = [&](const char* target) {
    return replications(program(gathered + instruction(4, "custom-call", 8, 3, "", target)), 8, 1)
        .size();
  };
  EXPECT_EQ(call("aten.svd"), 1u);
  EXPECT_EQ(call("__onednn$matmul"), 0u);
}

TEST(Replication, SeveralInOne) {
  const std::string both = message(4, shape(64)) + message(4, shape(16));
  const std::string gather = message(2, "all-gather") + message(3, both) + number(35, 3) +
                             message(36, {char(1), char(2)}) + message(7, message(2, "both"));
  const std::string computed = instruction(1, "add", 8) + instruction(2, "add", 8);
  const auto found = replications(program(computed + message(2, gather)), 8, 1);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].bytes, 256);  // the other is not whole
}

TEST(Replication, NotWhatWasAskedFor) {
  const std::string marked = instruction(1, "add", 8) +
                             instruction(2, "all-gather", 64, 1, "xla::sharding_constraint a.py:3");
  EXPECT_TRUE(replications(program(marked), 8, 1).empty());
}

TEST(Replication, OfBytesThatAreNoProgram) {
  EXPECT_TRUE(replications("", 8, 1).empty());
  EXPECT_THROW(replications("\x0a\x7f", 8, 1), std::invalid_argument);
  EXPECT_THROW(replications("\xff", 8, 1), std::invalid_argument);
}

}  // namespace
}  // namespace torch_xla::sharding
