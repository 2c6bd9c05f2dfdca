#include "learn/checkpoint/box.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace tutti::checkpoint {
namespace {

// How many elements of the box lie between neighbours along each dimension.
std::vector<std::int64_t> steps_of(const Box& box) {
  std::vector<std::int64_t> steps(box.extent.size(), 1);
  for (std::size_t at = steps.size(); at-- > 1;) steps[at - 1] = steps[at] * box.extent[at];
  return steps;
}

// The largest box that starts at element `begin` and ends at `end` or before: whole steps along one
// dimension, all of those inside it.
Box first_of_range(const Box& box, const std::vector<std::int64_t>& steps, std::int64_t begin,
                   std::int64_t end) {
  Box first = box;
  std::int64_t rest = begin;
  for (std::size_t at = 0; at < steps.size(); ++at) {
    const std::int64_t index = rest / steps[at];
    rest %= steps[at];
    first.offset[at] += index;
    const std::int64_t count = std::min(box.extent[at] - index, (end - begin) / steps[at]);
    if (rest == 0 && count > 0) {
      first.extent[at] = count;
      return first;
    }
    first.extent[at] = 1;
  }
  return first;
}

}  // namespace

std::int64_t Box::elements() const {
  // The other sizes of an empty box may be such that their product is no number.
  if (std::ranges::find(extent, 0) != extent.end()) return 0;
  std::int64_t product = 1;
  for (const std::int64_t size : extent) product *= size;
  return product;
}

std::string Box::text() const {
  std::string slices;
  for (std::size_t at = 0; at < offset.size(); ++at) {
    slices +=
        (at == 0 ? "" : ",") + std::to_string(offset[at]) + ":" + std::to_string(offset[at] + extent[at]);
  }
  return "[" + slices + "]";
}

Box whole(std::vector<std::int64_t> shape) {
  std::vector<std::int64_t> zeros(shape.size(), 0);
  return {std::move(zeros), std::move(shape)};
}

Box rows_of(std::vector<std::int64_t> shape, std::int64_t first_row, std::int64_t rows) {
  Box box = whole(std::move(shape));
  box.offset[0] = first_row;
  box.extent[0] = rows;
  return box;
}

bool is_inside(const Box& box, std::span<const std::int64_t> shape) {
  if (box.offset.size() != shape.size() || box.extent.size() != shape.size()) return false;
  for (std::size_t at = 0; at < shape.size(); ++at) {
    if (box.offset[at] < 0 || box.extent[at] < 0 || box.extent[at] > shape[at]) return false;
    if (box.offset[at] > shape[at] - box.extent[at]) return false;
  }
  return true;
}

std::optional<Box> intersect(const Box& a, const Box& b) {
  if (!overlap(a, b)) return std::nullopt;
  Box common = a;
  for (std::size_t at = 0; at < a.offset.size(); ++at) {
    common.offset[at] = std::max(a.offset[at], b.offset[at]);
    const std::int64_t end = std::min(a.offset[at] + a.extent[at], b.offset[at] + b.extent[at]);
    common.extent[at] = end - common.offset[at];
  }
  return common;
}

bool overlap(const Box& a, const Box& b) {
  TUTTI_CHECK(a.offset.size() == b.offset.size(), "boxes of one tensor");
  for (std::size_t at = 0; at < a.offset.size(); ++at) {
    const std::int64_t begin = std::max(a.offset[at], b.offset[at]);
    if (begin >= std::min(a.offset[at] + a.extent[at], b.offset[at] + b.extent[at])) return false;
  }
  return true;
}

std::vector<Box> boxes_of_range(const Box& box, std::int64_t begin, std::int64_t end) {
  TUTTI_CHECK(0 <= begin && begin <= end && end <= box.elements());
  if (begin == end) return {};
  const auto steps = steps_of(box);
  std::vector<Box> boxes;
  while (begin < end) {
    boxes.push_back(first_of_range(box, steps, begin, end));
    begin += boxes.back().elements();
  }
  return boxes;
}

SharedRuns::SharedRuns(const Box& source, const Box& wanted) {
  const auto common = intersect(source, wanted);
  if (!common) return;
  more_ = true;
  run_.elements = 1;
  const auto source_steps = steps_of(source);
  const auto wanted_steps = steps_of(wanted);
  for (std::size_t at = 0; at < common->offset.size(); ++at) {
    run_.source += (common->offset[at] - source.offset[at]) * source_steps[at];
    run_.wanted += (common->offset[at] - wanted.offset[at]) * wanted_steps[at];
  }
  // From the fastest dimension outwards: a run spans a dimension if what it spans so far is side by side
  // along it.
  bool spans = true;
  for (std::size_t at = common->offset.size(); at-- > 0;) {
    const std::int64_t count = common->extent[at];
    if (spans) {
      run_.elements *= count;
    } else if (count > 1) {
      outer_.insert(outer_.begin(), {count, source_steps[at], wanted_steps[at]});
    }
    spans = spans && count == source.extent[at] && count == wanted.extent[at];
  }
}

std::optional<Run> SharedRuns::next() {
  if (!more_) return std::nullopt;
  const Run current = run_;
  more_ = false;
  for (std::size_t at = outer_.size(); at-- > 0 && !more_;) {
    Dimension& dimension = outer_[at];
    ++dimension.at;
    more_ = dimension.at < dimension.count;
    // Forward by a step, or back to the beginning while the next slower dimension goes on.
    const std::int64_t steps = more_ ? 1 : 1 - dimension.count;
    run_.source += steps * dimension.source_step;
    run_.wanted += steps * dimension.wanted_step;
    if (!more_) dimension.at = 0;
  }
  return current;
}

}  // namespace tutti::checkpoint
