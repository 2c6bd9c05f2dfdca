#include "learn/train/layout.hpp"

#include <gtest/gtest.h>

namespace tutti::train {
namespace {

model::Tensor tensor(const std::string& name, std::vector<std::int64_t> shape, model::Split split,
                     bool decays) {
  return {.name = name, .shape = std::move(shape), .split = split, .decays = decays};
}

std::vector<model::Tensor> some_tensors() {
  return {tensor("norm", {6}, model::Split::whole, false), tensor("up", {8, 6}, model::Split::rows, true),
          tensor("down", {6, 8}, model::Split::columns, true)};
}

TEST(Slot, HasItsSliceOfATensor) {
  const Cut second{.slices = 2, .slice = 1, .vocabulary_multiple = 4};
  const Slot rows = slot_of(tensor("up", {8, 6}, model::Split::rows, true), Role::single, second);
  EXPECT_EQ(rows.box, (checkpoint::Box{{4, 0}, {4, 6}}));
  EXPECT_TRUE(rows.ours);
  const Slot columns = slot_of(tensor("down", {6, 8}, model::Split::columns, true), Role::single, second);
  EXPECT_EQ(columns.box, (checkpoint::Box{{0, 4}, {6, 4}}));
  const Slot whole = slot_of(tensor("norm", {6}, model::Split::whole, false), Role::single, second);
  EXPECT_TRUE(whole.partial);
  EXPECT_FALSE(whole.ours) << "the first slice saves it";
  const Slot words = slot_of(tensor("words", {9, 2}, model::Split::vocabulary, true), Role::single, second);
  EXPECT_EQ(words.box, (checkpoint::Box{{5, 0}, {4, 2}}));
  EXPECT_EQ(words.shape, (std::vector<std::int64_t>{8, 2})) << "padded";
  EXPECT_FALSE(slot_of(words.tensor, Role::second_of_two, {}).ours);
}

TEST(Layout, PutsWhatDecaysFirstAndGivesReplicasEqualParts) {
  const Layout layout(some_tensors(), Role::single, {}, 3);
  EXPECT_EQ(layout.slots()[0].tensor.name, "up");
  EXPECT_EQ(layout.slots()[2].tensor.name, "norm");
  EXPECT_EQ(layout.decaying().end, 96);
  EXPECT_EQ(layout.count(), 192) << "102 elements, in whole cache lines for each of three";
  EXPECT_EQ(layout.part(1).begin, 64);
  EXPECT_EQ(layout.part(2).end, layout.count());
  ASSERT_EQ(layout.ours().size(), 1U);
  EXPECT_EQ(layout.ours()[0].end, 102);
  const View both = Layout({some_tensors()[1], some_tensors()[1]}, Role::single, {}, 1).view({"up", "up"});
  EXPECT_EQ(both.rows, 16);
  EXPECT_EQ(both.columns, 6);
}

TEST(Layout, RangesFallIntoPiecesOfItsTensors) {
  const Layout layout(some_tensors(), Role::single, {}, 3);
  std::int64_t covered = 0;
  for (std::int64_t replica = 0; replica < 3; ++replica) {
    const Range part = layout.part(replica);
    for (const Piece& piece : layout.pieces(part)) {
      EXPECT_EQ(piece.box.elements(), piece.count);
      EXPECT_LE(piece.at + piece.count, part.count());
      covered += piece.count;
    }
  }
  EXPECT_EQ(covered, 102) << "the padding belongs to nobody";
}

TEST(Range, CountsFromTheOtherOne) {
  EXPECT_EQ(inside({5, 20}, {10, 30}).begin, 0);
  EXPECT_EQ(inside({5, 20}, {10, 30}).end, 10);
  EXPECT_EQ(inside({12, 50}, {10, 30}).begin, 2);
  EXPECT_EQ(inside({12, 50}, {10, 30}).count(), 18);
  EXPECT_EQ(inside({0, 5}, {10, 30}).count(), 0);
  EXPECT_EQ(inside({40, 50}, {10, 30}).count(), 0);
}

}  // namespace
}  // namespace tutti::train
