// Rectangular parts of a tensor: what a rank holds, what a file stores, what a reader wants. Elements of a
// box are counted in row-major order of the box. Values and pure functions, any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tutti::checkpoint {

// One offset and one extent for each dimension of the tensor. A scalar has none, and one element.
struct Box {
  std::vector<std::int64_t> offset;
  std::vector<std::int64_t> extent;

  std::int64_t elements() const;
  // As Python writes a slice: "[0:4,8:16]".
  std::string text() const;
  friend bool operator==(const Box&, const Box&) = default;
};

Box whole(std::vector<std::int64_t> shape);
// Whole rows of it.
Box rows_of(std::vector<std::int64_t> shape, std::int64_t first_row, std::int64_t rows);

// Whether the box is a part of a tensor of this shape; an empty one is.
bool is_inside(const Box& box, std::span<const std::int64_t> shape);

// What both have, if that is anything. They have the same number of dimensions.
std::optional<Box> intersect(const Box& a, const Box& b);
bool overlap(const Box& a, const Box& b);

// The elements [begin, end) of the box as boxes, in order: at most 2 · dimensions − 1. This is how a flat
// shard of a slice of a tensor is told to a checkpoint.
std::vector<Box> boxes_of_range(const Box& box, std::int64_t begin, std::int64_t end);

// Elements that lie side by side in two boxes: where they begin in each, and how many they are.
struct Run {
  std::int64_t source = 0;
  std::int64_t wanted = 0;
  std::int64_t elements = 0;
  friend bool operator==(const Run&, const Run&) = default;
};

// The runs that two boxes share, from the first to the last element, each as long as it can be.
class SharedRuns {
 public:
  SharedRuns(const Box& source, const Box& wanted);
  std::optional<Run> next();

 private:
  struct Dimension {
    std::int64_t count;  // of the steps along it
    std::int64_t source_step;
    std::int64_t wanted_step;
    std::int64_t at = 0;
  };

  Run run_;
  bool more_ = false;
  std::vector<Dimension> outer_;  // what a run does not span, the slowest first
};

}  // namespace tutti::checkpoint
