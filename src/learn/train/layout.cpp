#include "learn/train/layout.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace tutti::train {
namespace {

// Parts of flat memory begin at whole cache lines.
constexpr std::int64_t part_multiple = 64;

std::int64_t rounded_up(std::int64_t count, std::int64_t multiple) {
  return (count + multiple - 1) / multiple * multiple;
}

// The slice's share of one dimension of the tensor.
void cut_dimension(Slot& slot, std::size_t dimension, const Cut& cut) {
  const std::int64_t whole = slot.tensor.shape[dimension];
  const std::int64_t each = (whole + cut.slices - 1) / cut.slices;
  slot.shape[dimension] = each;
  slot.box.offset[dimension] = std::min(whole, each * cut.slice);
  slot.box.extent[dimension] = std::min(whole, each * (cut.slice + 1)) - slot.box.offset[dimension];
}

}  // namespace

Slot slot_of(const model::Tensor& tensor, Role role, const Cut& cut) {
  Slot slot{.tensor = tensor, .shape = tensor.shape};
  slot.box = checkpoint::whole(tensor.shape);
  switch (tensor.split) {
    case model::Split::whole:
      slot.partial = cut.slices > 1;
      break;
    case model::Split::rows:
      cut_dimension(slot, 0, cut);
      break;
    case model::Split::columns:
      cut_dimension(slot, 1, cut);
      break;
    case model::Split::vocabulary:
      cut_dimension(slot, 0, cut);
      slot.shape[0] = rounded_up(slot.shape[0], cut.vocabulary_multiple);
      break;
  }
  if (tensor.split == model::Split::rows || tensor.split == model::Split::columns) {
    TUTTI_CHECK(slot.shape == slot.box.extent, "the mesh divides the tensor");
  }
  slot.count = checkpoint::whole(slot.shape).elements();
  slot.ours = role != Role::second_of_two && !(slot.partial && cut.slice > 0);
  return slot;
}

Range inside(const Range& range, const Range& of) {
  const std::int64_t begin = std::clamp(range.begin, of.begin, of.end) - of.begin;
  const std::int64_t end = std::clamp(range.end, of.begin, of.end) - of.begin;
  return {begin, std::max(begin, end)};
}

Layout::Layout(std::vector<model::Tensor> tensors, Role role, const Cut& cut, std::int64_t replicas)
    : role_(role), replicas_(replicas) {
  std::stable_partition(tensors.begin(), tensors.end(),
                        [](const model::Tensor& tensor) { return tensor.decays; });
  std::int64_t used = 0;
  for (const model::Tensor& tensor : tensors) {
    Slot slot = slot_of(tensor, role, cut);
    slot.begin = used;
    used += slot.count;
    if (tensor.decays) decaying_end_ = used;
    slots_.push_back(std::move(slot));
  }
  count_ = rounded_up(used, part_multiple * replicas);
}

Range Layout::part(std::int64_t replica) const {
  const std::int64_t each = count_ / replicas_;
  return {each * replica, each * (replica + 1)};
}

std::vector<Range> Layout::ours() const {
  std::vector<Range> runs;
  for (const Slot& slot : slots_) {
    if (!slot.ours) continue;
    if (!runs.empty() && runs.back().end == slot.begin) {
      runs.back().end = slot.end();
    } else {
      runs.push_back({slot.begin, slot.end()});
    }
  }
  return runs;
}

View Layout::view(const std::vector<std::string>& names) const {
  const auto found = std::find_if(slots_.begin(), slots_.end(),
                                  [&](const Slot& slot) { return slot.tensor.name == names.front(); });
  TUTTI_CHECK(found != slots_.end(), "the tensors of a view are in the storage");
  View view{
      .begin = found->begin, .slot = static_cast<std::size_t>(found - slots_.begin()), .slots = names.size()};
  for (std::size_t i = 0; i < names.size(); ++i) {
    const Slot& slot = slots_.at(view.slot + i);
    TUTTI_CHECK(slot.tensor.name == names[i], "the tensors of a view lie one after the other");
    view.rows += slot.shape.front();
    view.columns = slot.shape.size() == 2 ? slot.shape[1] : 0;
  }
  return view;
}

std::vector<Piece> Layout::pieces(const Range& range) const {
  std::vector<Piece> all;
  for (const Slot& slot : slots_) {
    // The padding of a cut vocabulary lies behind the values, and belongs to nobody.
    const std::int64_t from = std::max(range.begin, slot.begin);
    const std::int64_t to = std::min(range.end, slot.begin + slot.box.elements());
    if (from >= to) continue;
    std::int64_t at = from - range.begin;
    for (checkpoint::Box& box : checkpoint::boxes_of_range(slot.box, from - slot.begin, to - slot.begin)) {
      const std::int64_t count = box.elements();
      all.push_back({&slot, std::move(box), at, count});
      at += count;
    }
  }
  return all;
}

}  // namespace tutti::train
