#include "ir/attributes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>

namespace torch_xla::ir {
namespace {

enum class Mode : uint8_t { kFirst, kSecond };

AttributeReader reader(const Attributes& attributes) { return AttributeReader(attributes.words()); }

TEST(Attributes, ReadBackInTheOrderWritten) {
  const std::vector<int64_t> dims{3, 0, -1};
  const Attributes attributes =
      Attributes::of(int64_t{-7}, true, Mode::kSecond, 0.1, dims, std::string_view("tanh"));
  AttributeReader read = reader(attributes);
  EXPECT_EQ(read.integer(), -7);
  EXPECT_TRUE(read.boolean());
  EXPECT_EQ(read.enumeration<Mode>(), Mode::kSecond);
  EXPECT_EQ(read.real(), 0.1);
  const auto list = read.list();
  EXPECT_EQ(std::vector<int64_t>(list.begin(), list.end()), dims);
  EXPECT_EQ(read.string(), "tanh");
  EXPECT_TRUE(read.done());
}

TEST(Attributes, ExtremeNumbersKeepTheirBits) {
  const Attributes attributes = Attributes::of(std::numeric_limits<int64_t>::min(), -0.0,
                                               std::numeric_limits<double>::infinity());
  AttributeReader read = reader(attributes);
  EXPECT_EQ(read.integer(), std::numeric_limits<int64_t>::min());
  EXPECT_TRUE(std::signbit(read.real()));
  EXPECT_EQ(read.real(), std::numeric_limits<double>::infinity());
}

TEST(Attributes, StringsOfEveryLengthAroundAWord) {
  const std::string text = "0123456789abcdefg";
  for (size_t length = 0; length <= text.size(); ++length) {
    const Attributes attributes = Attributes::of(std::string_view(text).substr(0, length), 5);
    AttributeReader read = reader(attributes);
    EXPECT_EQ(read.string(), text.substr(0, length));
    EXPECT_EQ(read.integer(), 5);
  }
}

// The first words are kept inside the object; the change to the heap must lose none.
TEST(Attributes, MoreWordsThanFitInline) {
  for (int64_t count : {23, 24, 25, 200}) {
    Attributes attributes;
    for (int64_t i = 0; i < count; ++i) attributes.add(i * i);
    ASSERT_EQ(attributes.words().size(), static_cast<size_t>(count));
    const Attributes copy = attributes;
    AttributeReader read = reader(copy);
    for (int64_t i = 0; i < count; ++i) EXPECT_EQ(read.integer(), i * i);
    EXPECT_TRUE(read.done());
  }
}

TEST(Attributes, EmptyListsAndNoAttributes) {
  EXPECT_TRUE(reader(Attributes()).done());
  const Attributes attributes = Attributes::of(std::vector<int64_t>());
  AttributeReader read = reader(attributes);
  EXPECT_TRUE(read.list().empty());
  EXPECT_TRUE(read.done());
}

TEST(Attributes, WrongReadsThrow) {
  EXPECT_THROW(reader(Attributes()).integer(), std::logic_error);
  EXPECT_THROW(reader(Attributes::of(5)).list(), std::logic_error);
  EXPECT_THROW(reader(Attributes::of(-1)).list(), std::logic_error);
  EXPECT_THROW(reader(Attributes::of(100)).string(), std::logic_error);
  EXPECT_THROW(reader(Attributes::of(-1)).string(), std::logic_error);
}

}  // namespace
}  // namespace torch_xla::ir
