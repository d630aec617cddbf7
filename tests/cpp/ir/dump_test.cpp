#include "ir/dump.h"

#include <gtest/gtest.h>

#include "ir/ops.h"
#include "ir/run.h"

namespace torch_xla::ir {
namespace {

std::string text_of(const Value& root, bool locations = false) {
  return to_text(std::span(&root, 1), locations);
}

TEST(Dump, TextHasOneLineANode) {
  const Value x = testing::input(testing::f32({2, 3}, {1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(text_of(testing::add(x, testing::rotate(x, 1))),
            "IR {\n"
            "  %0 = f32[2,3]{1,0} xla::device_data(), xla_shape=f32[2,3]{1,0}\n"
            "  %1 = f32[2,3]{1,0} test::rotate(%0), xla_shape=f32[2,3]{1,0}\n"
            "  %2 = f32[2,3]{1,0} test::add(%0, %1), xla_shape=f32[2,3]{1,0}, ROOT=0\n"
            "}\n");
}

TEST(Dump, TextNamesTheOutputOfANodeWithSeveral) {
  const Value x = testing::input(testing::f32({2}, {1, 2}));
  const auto [sum, difference] = testing::both(x, scalar(1.0, ElementType::kF32));
  const Value roots[] = {sum, testing::rotate(difference, 1)};
  EXPECT_EQ(to_text(roots),
            "IR {\n"
            "  %0 = f32[2]{0} xla::device_data(), xla_shape=f32[2]{0}\n"
            "  %1 = f32[] prim::Constant(), xla_shape=f32[]\n"
            "  %2 = (f32[2]{0}, f32[2]{0}) test::both(%0, %1), "
            "xla_shape=(f32[2]{0}, f32[2]{0}), ROOT=0\n"
            "  %3 = f32[2]{0} test::rotate(%2.1), xla_shape=f32[2]{0}, ROOT=1\n"
            "}\n");
}

TEST(Dump, TextShowsLocationsWhenAsked) {
  set_location_provider(
      {[] { return Location{7}; }, [](Location) { return std::string("forward@model.py:7"); }});
  const Value x = testing::input(testing::f32({2}, {1, 2}));
  EXPECT_NE(text_of(x, true).find("location=forward@model.py:7"), std::string::npos);
  EXPECT_EQ(text_of(x).find("location="), std::string::npos);
  set_location_provider({});
}

TEST(Dump, DotHasNodesAndNumberedEdges) {
  const Value x = testing::input(testing::f32({2}, {1, 2}));
  const Value root = testing::add(testing::rotate(x, 1), x);
  EXPECT_EQ(to_dot(std::span(&root, 1)),
            "digraph G {\n"
            "  node0 [label=\"xla::device_data\\nf32[2]{0}\\nxla_shape=f32[2]{0}\"]\n"
            "  node1 [label=\"test::rotate\\nf32[2]{0}\\nxla_shape=f32[2]{0}\"]\n"
            "  node2 [label=\"test::add\\nf32[2]{0}\\nxla_shape=f32[2]{0}, ROOT=0\"]\n"
            "  node0 -> node1\n"
            "  node1 -> node2 [label=\"i=0\"]\n"
            "  node0 -> node2 [label=\"i=1\"]\n"
            "}\n");
}

}  // namespace
}  // namespace torch_xla::ir
