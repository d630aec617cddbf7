#include "sharding/sharding.h"

#include <gtest/gtest.h>

#include <numeric>

#include "sharding/op_sharding.h"

namespace torch_xla::sharding {
namespace {

std::vector<int64_t> iota(int64_t count) {
  std::vector<int64_t> numbers(static_cast<size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

const Mesh* grid() { return Mesh::get({"x", "y"}, {2, 4}, iota(8)); }
AxisPart whole(const Mesh* mesh, size_t axis) { return {axis, 1, mesh->sizes()[axis]}; }

TEST(Mesh, IsOneObject) {
  EXPECT_EQ(grid(), grid());
  EXPECT_NE(grid(), Mesh::get({"x", "y"}, {4, 2}, iota(8)));
}

TEST(Mesh, SaysItsDevicesWhereTheyAreInAnotherOrder) {
  EXPECT_EQ(grid()->text(), "<[\"x\"=2, \"y\"=4]>");
  EXPECT_EQ(Mesh::get({"a"}, {2}, {1, 0})->text(), "<[\"a\"=2], device_ids=[1,0]>");
}

TEST(Mesh, RefusesWhatDoesNotFit) {
  EXPECT_THROW(Mesh::get({"x"}, {2, 4}, iota(8)), std::invalid_argument);
  EXPECT_THROW(Mesh::get({"x", "x"}, {2, 4}, iota(8)), std::invalid_argument);
  EXPECT_THROW(Mesh::get({"x", "y"}, {2, 4}, iota(7)), std::invalid_argument);
  EXPECT_THROW(Mesh::get({"x"}, {2}, {0, 0}), std::invalid_argument);
  EXPECT_THROW(Mesh::get({"\""}, {1}, {0}), std::invalid_argument);
  EXPECT_THROW(Mesh::get({"x"}, {0}, {}), std::invalid_argument);
}

TEST(Sharding, CutsByAxes) {
  const Mesh* mesh = grid();
  const Sharding* sharding = Sharding::get(mesh, {{whole(mesh, 1)}, {}});
  EXPECT_EQ(sharding->tiles(), (Dims{4, 1}));
  EXPECT_EQ(sharding->tile_of(), (std::vector<int64_t>{0, 1, 2, 3, 0, 1, 2, 3}));
  EXPECT_EQ(sharding->holders(), (std::vector<size_t>{0, 1, 2, 3}));
  EXPECT_EQ(sharding->shardy("m"), "#sdy.sharding<@m, [{\"y\"}, {}]>");
  EXPECT_EQ(sharding->hlo(), "{devices=[4,1,2]0,4,1,5,2,6,3,7 last_tile_dim_replicate}");
}

TEST(Sharding, TwoAxesOfOneDimensionCountFromTheFirst) {
  const Mesh* mesh = grid();
  const Sharding* sharding = Sharding::get(mesh, {{whole(mesh, 1), whole(mesh, 0)}});
  EXPECT_EQ(sharding->tile_of(), (std::vector<int64_t>{0, 2, 4, 6, 1, 3, 5, 7}));
}

TEST(Sharding, RangesOfUnevenSizes) {
  const Mesh* mesh = grid();
  const Sharding* sharding = Sharding::get(mesh, {{whole(mesh, 1)}});
  const std::vector<int64_t> sizes{5};
  EXPECT_EQ(sharding->tile_dims(sizes), (Dims{2}));
  EXPECT_EQ(sharding->ranges(sizes, 0)[0], (Range{0, 2}));
  EXPECT_EQ(sharding->ranges(sizes, 2)[0], (Range{4, 5}));
  EXPECT_EQ(sharding->ranges(sizes, 7)[0], (Range{5, 5}));
}

TEST(Sharding, AxesOfSizeOneCutNothing) {
  const Mesh* mesh = Mesh::get({"a", "b"}, {1, 8}, iota(8));
  EXPECT_EQ(Sharding::get(mesh, {{whole(mesh, 0)}}), Sharding::replicated(mesh, 1));
}

TEST(Sharding, RefusesAnAxisTwice) {
  const Mesh* mesh = grid();
  EXPECT_THROW(Sharding::get(mesh, {{whole(mesh, 0)}, {whole(mesh, 0)}}), std::invalid_argument);
  EXPECT_THROW(Sharding::get(mesh, {{{1, 1, 3}}}), std::invalid_argument);
  EXPECT_THROW(Sharding::get(mesh, {{{2, 1, 1}, {5, 1, 2}}}), std::invalid_argument);
}

TEST(Sharding, LayoutIsThatOfTheTiles) {
  const Mesh* mesh = grid();
  const Mesh* line = Mesh::get({"z"}, {8}, iota(8));
  const Sharding* one = Sharding::get(mesh, {{whole(mesh, 0), whole(mesh, 1)}});
  const Sharding* other = Sharding::get(line, {{whole(line, 0)}});
  EXPECT_NE(one, other);
  EXPECT_EQ(one->layout(), other->layout());
  EXPECT_NE(one->layout(), Sharding::replicated(mesh, 1)->layout());
}

TEST(Sharding, TilesAreSaidInAxesOfTheMesh) {
  const Mesh* mesh = grid();
  for (const auto& dims : std::vector<std::vector<std::vector<AxisPart>>>{
           {{}, {}},
           {{whole(mesh, 0)}, {whole(mesh, 1)}},
           {{whole(mesh, 1), whole(mesh, 0)}, {}},
           {{{1, 1, 2}}, {whole(mesh, 0), {1, 2, 2}}},
           {{{1, 2, 2}}, {}},
       }) {
    const Sharding* sharding = Sharding::get(mesh, dims);
    EXPECT_EQ(Sharding::of_tiles(mesh, sharding->tiles(), sharding->tile_of()), sharding)
        << sharding->shardy("m");
  }
}

TEST(Sharding, PartOfAnAxisIsNamed) {
  const Sharding* sharding = Sharding::get(grid(), {{{1, 2, 2}}});
  EXPECT_EQ(sharding->shardy("m"), "#sdy.sharding<@m, [{\"y\":(2)2}]>");
  EXPECT_EQ(sharding->tile_of(), (std::vector<int64_t>{0, 1, 0, 1, 0, 1, 0, 1}));
}

TEST(Sharding, OtherTilesGetAMeshOfTheirOwn) {
  const std::vector<int64_t> tile_of{3, 0, 1, 2, 2, 1, 0, 3};
  const Sharding* sharding = Sharding::of_tiles(grid(), {4}, tile_of);
  EXPECT_NE(sharding->mesh(), grid());
  EXPECT_EQ(sharding->tile_of(), tile_of);
}

TEST(Sharding, RefusesTilesThatDoNotFit) {
  EXPECT_THROW(Sharding::of_tiles(grid(), {3}, std::vector<int64_t>(8)), std::invalid_argument);
  EXPECT_THROW(Sharding::of_tiles(grid(), {2}, {0, 0, 0, 0, 0, 0, 0, 1}), std::invalid_argument);
  EXPECT_THROW(Sharding::of_tiles(grid(), {2}, {0, 1}), std::invalid_argument);
}

// As XLA writes them: type OTHER (3), tile dimensions, then devices or a transposed iota.
TEST(OpSharding, ReadsDevicesAndIotas) {
  const Mesh* mesh = grid();
  const std::string devices("\x08\x03\x1a\x02\x02\x04\x22\x08\x00\x01\x02\x03\x04\x05\x06\x07", 16);
  EXPECT_EQ(parse_op_sharding(devices, mesh, 2),
            Sharding::get(mesh, {{whole(mesh, 0)}, {whole(mesh, 1)}}));
  const std::string iota("\x08\x03\x1a\x02\x04\x02\x30\x01\x4a\x02\x02\x04\x52\x02\x01\x00", 16);
  EXPECT_EQ(parse_op_sharding(iota, mesh, 1), Sharding::get(mesh, {{whole(mesh, 1)}}));
  EXPECT_EQ(parse_op_sharding("", mesh, 3), Sharding::replicated(mesh, 3));
}

TEST(OpSharding, RefusesOtherBytes) {
  EXPECT_THROW(parse_op_sharding("\x08", grid(), 1), std::invalid_argument);
  EXPECT_THROW(parse_op_sharding("\x08\x01", grid(), 1), std::invalid_argument);
  EXPECT_THROW(parse_op_sharding("\x08\x03\x1a\x05\x01", grid(), 1), std::invalid_argument);
}

}  // namespace
}  // namespace torch_xla::sharding
