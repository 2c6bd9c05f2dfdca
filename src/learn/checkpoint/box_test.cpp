#include "learn/checkpoint/box.hpp"

#include <algorithm>
#include <limits>
#include <map>

#include <gtest/gtest.h>

#include "base/prng.hpp"

namespace tutti::checkpoint {
namespace {

using Position = std::vector<std::int64_t>;

// Every element's position in the tensor, in row-major order of the box: what a box means, spelled out.
std::vector<Position> positions(const Box& box) {
  std::vector<Position> all;
  for (std::int64_t element = 0; element < box.elements(); ++element) {
    Position position(box.offset.size());
    std::int64_t rest = element;
    for (std::size_t at = position.size(); at-- > 0;) {
      position[at] = box.offset[at] + rest % box.extent[at];
      rest /= box.extent[at];
    }
    all.push_back(std::move(position));
  }
  return all;
}

std::vector<std::int64_t> random_shape(Prng& prng) {
  std::vector<std::int64_t> shape(prng.below(5));
  for (auto& size : shape) size = prng.between(1, 5);
  return shape;
}

Box random_box(Prng& prng, const std::vector<std::int64_t>& shape) {
  Box box = whole(shape);
  for (std::size_t at = 0; at < shape.size(); ++at) {
    box.offset[at] = prng.between(0, shape[at] - 1);
    box.extent[at] = prng.between(1, shape[at] - box.offset[at]);
  }
  return box;
}

TEST(Box, SaysWhatItHolds) {
  const Box box{{1, 0}, {2, 3}};
  EXPECT_EQ(box.elements(), 6);
  EXPECT_EQ(box.text(), "[1:3,0:3]");
  EXPECT_EQ(whole({}).elements(), 1) << "a scalar";
  EXPECT_EQ(whole({}).text(), "[]");
  EXPECT_EQ(whole({4, 0}).elements(), 0);
  constexpr std::int64_t huge = std::int64_t{1} << 40;
  EXPECT_EQ(whole({huge, huge, 0}).elements(), 0);
  EXPECT_TRUE(boxes_of_range(whole({huge, 0, huge, huge}), 0, 0).empty());
}

TEST(Box, IsInsideATensorOrNot) {
  const std::vector<std::int64_t> shape{4, 6};
  EXPECT_TRUE(is_inside({{0, 0}, {4, 6}}, shape));
  EXPECT_TRUE(is_inside({{4, 2}, {0, 1}}, shape));
  EXPECT_FALSE(is_inside({{1, 0}, {4, 6}}, shape));
  EXPECT_FALSE(is_inside({{-1, 0}, {1, 1}}, shape));
  EXPECT_FALSE(is_inside({{0, 0}, {1, -1}}, shape));
  EXPECT_FALSE(is_inside({{0}, {4}}, shape));
  EXPECT_FALSE(is_inside({{0, 0}, {4}}, shape));
  EXPECT_FALSE(is_inside({{std::numeric_limits<std::int64_t>::max(), 0}, {2, 1}}, shape));
}

TEST(Box, OfAFlatRangeOfAMatrixIsHeadMiddleAndTail) {
  const Box slice{{10, 20}, {4, 6}};
  EXPECT_EQ(boxes_of_range(slice, 4, 21),
            (std::vector<Box>{{{10, 24}, {1, 2}}, {{11, 20}, {2, 6}}, {{13, 20}, {1, 3}}}));
  EXPECT_EQ(boxes_of_range(slice, 0, 24), std::vector<Box>{slice});
  EXPECT_EQ(boxes_of_range(slice, 7, 9), (std::vector<Box>{{{11, 21}, {1, 2}}}));
  EXPECT_TRUE(boxes_of_range(slice, 5, 5).empty());
  EXPECT_EQ(boxes_of_range(whole({}), 0, 1), std::vector<Box>{whole({})});
}

TEST(Box, OfAnyRangeHoldsExactlyItInOrder) {
  Prng prng(1);
  for (int round = 0; round < 3000; ++round) {
    const Box box = random_box(prng, random_shape(prng));
    const std::int64_t begin = prng.between(0, box.elements());
    const std::int64_t end = prng.between(begin, box.elements());
    const auto boxes = boxes_of_range(box, begin, end);
    std::vector<Position> found;
    for (const Box& part : boxes) {
      for (auto& position : positions(part)) found.push_back(std::move(position));
    }
    const auto all = positions(box);
    ASSERT_EQ(found, std::vector<Position>(all.begin() + begin, all.begin() + end)) << box.text();
    ASSERT_LE(boxes.size(), box.offset.empty() ? 1 : 2 * box.offset.size() - 1);
  }
}

TEST(Box, IntersectsAsItsElementsDo) {
  Prng prng(2);
  for (int round = 0; round < 3000; ++round) {
    const auto shape = random_shape(prng);
    const Box a = random_box(prng, shape);
    const Box b = random_box(prng, shape);
    const auto in_b = positions(b);
    std::vector<Position> both;
    for (const auto& position : positions(a)) {
      if (std::ranges::find(in_b, position) != in_b.end()) both.push_back(position);
    }
    const auto common = intersect(a, b);
    ASSERT_EQ(common.has_value(), !both.empty()) << a.text() << b.text();
    ASSERT_EQ(overlap(a, b), !both.empty());
    if (common) {
      ASSERT_EQ(positions(*common), both);
    }
  }
}

// The runs of two boxes, checked element by element; how many there were.
std::size_t check_runs(const Box& source, const Box& wanted) {
  const auto in_source = positions(source);
  std::map<Position, std::int64_t> in_wanted;
  for (const auto& position : positions(wanted)) in_wanted.emplace(position, in_wanted.size());
  std::vector<std::pair<std::int64_t, std::int64_t>> expected;
  for (std::size_t at = 0; at < in_source.size(); ++at) {
    const auto found = in_wanted.find(in_source[at]);
    if (found != in_wanted.end()) expected.emplace_back(at, found->second);
  }
  std::vector<std::pair<std::int64_t, std::int64_t>> copied;
  std::size_t runs = 0;
  SharedRuns shared(source, wanted);
  while (const auto run = shared.next()) {
    for (std::int64_t at = 0; at < run->elements; ++at)
      copied.emplace_back(run->source + at, run->wanted + at);
    ++runs;
  }
  EXPECT_EQ(copied, expected) << source.text() << wanted.text();
  EXPECT_FALSE(shared.next());
  return runs;
}

TEST(SharedRuns, CopyExactlyWhatBothBoxesHold) {
  Prng prng(3);
  for (int round = 0; round < 3000; ++round) {
    const auto shape = random_shape(prng);
    check_runs(random_box(prng, shape), random_box(prng, shape));
  }
}

TEST(SharedRuns, AreAsLongAsTheyCanBe) {
  EXPECT_EQ(check_runs(whole({4, 6}), whole({4, 6})), 1U);
  EXPECT_EQ(check_runs({{0, 0}, {3, 6}}, {{1, 0}, {3, 6}}), 1U) << "whole rows";
  EXPECT_EQ(check_runs(whole({4, 6}), {{0, 2}, {4, 2}}), 4U) << "columns";
  EXPECT_EQ(check_runs(whole({3, 4, 5}), {{1, 1, 0}, {2, 2, 5}}), 2U);
  EXPECT_EQ(check_runs(whole({}), whole({})), 1U);
  EXPECT_EQ(check_runs({{0}, {2}}, {{2}, {2}}), 0U);
}

}  // namespace
}  // namespace tutti::checkpoint
