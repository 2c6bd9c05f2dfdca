#include "learn/train/parameters.hpp"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/bytes.hpp"
#include "base/check.hpp"
#include "base/hash/hash.hpp"
#include "base/prng.hpp"
#include "learn/train/failure.hpp"
#include "learn/train/math.hpp"

namespace tutti::train {
namespace {

// Parts of flat memory begin at whole cache lines.
constexpr std::int64_t part_multiple = 64;
// Reductions of earlier units may still run while the next ones are computed.
constexpr std::size_t folding_max = 2;

std::int64_t rounded_up(std::int64_t count, std::int64_t multiple) {
  return (count + multiple - 1) / multiple * multiple;
}

std::int64_t product(const std::vector<std::int64_t>& shape) {
  std::int64_t result = 1;
  for (const std::int64_t size : shape) result *= size;
  return result;
}

}  // namespace

at::Tensor flat_memory(std::int64_t count, at::ScalarType type, at::Device device) {
  const auto options = at::TensorOptions(device).dtype(type);
  if (!device.is_cpu()) return at::zeros({count}, options);
  const auto bytes = static_cast<std::size_t>(count) * at::elementSize(type);
  auto buffer =
      std::make_shared<comm::SharedBuffer>(require(comm::allocate(std::max<std::size_t>(bytes, 1))));
  return at::from_blob(
      buffer->data(), {count}, [buffer](void*) {}, options);
}

// ---- storage

Storage::Storage(Parameters& owner, std::vector<model::Tensor> tensors, Role role)
    : owner_(owner), role_(role) {
  const Keeping& keeping = owner.keeping_;
  std::stable_partition(tensors.begin(), tensors.end(),
                        [](const model::Tensor& tensor) { return tensor.decays; });
  std::int64_t used = 0;
  for (const model::Tensor& tensor : tensors) {
    Slot slot = owner.slot_of(tensor, role);
    slot.begin = used;
    used += slot.count;
    if (tensor.decays) decaying_end_ = used;
    slots_.push_back(std::move(slot));
  }
  touched_.resize(slots_.size());
  const Group& data = owner.groups_.data;
  count_ = rounded_up(used, part_multiple * data.size());
  const bool sharded = keeping.zero != Zero::none;
  owned_begin_ = sharded ? count_ / data.size() * data.rank() : 0;
  owned_end_ = sharded ? owned_begin_ + count_ / data.size() : count_;
  const std::int64_t owned = owned_end_ - owned_begin_;

  if (keeping.zero == Zero::parameters) {
    own_weights_ = flat_memory(owned, keeping.type, keeping.device);
  } else {
    weights_ = flat_memory(count_, keeping.type, keeping.device);
    own_weights_ = weights_.slice(0, owned_begin_, owned_end_);
  }
  const auto exact = at::TensorOptions(keeping.device).dtype(at::kFloat);
  master_ = keeping.type == at::kFloat ? own_weights_ : at::zeros({owned}, exact);
  first_ = at::zeros({owned}, exact);
  second_ = at::zeros({owned}, exact);
  if (keeping.zero >= Zero::gradients) {
    accumulated_ = at::zeros({owned}, exact);
  } else {
    gradients_ = flat_memory(count_, keeping.type, keeping.device);
    if (keeping.type != at::kFloat && keeping.microbatches > 1) {
      accumulated_ = flat_memory(count_, at::kFloat, keeping.device);
    }
  }
}

View Storage::view(const std::vector<std::string>& names) const {
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

at::Tensor Storage::shaped(const at::Tensor& flat, const View& view) const {
  if (view.columns == 0) return flat.as_strided({view.rows}, {1}, flat.storage_offset() + view.begin);
  return flat.as_strided({view.rows, view.columns}, {view.columns, 1}, flat.storage_offset() + view.begin);
}

void Storage::foresee() {
  if (owner_.keeping_.zero != Zero::parameters || weights_.defined()) return;
  weights_ = owner_.take(count_);
  gathering_ = owner_.groups_.data.begin_all_gather(own_weights_, weights_);
}

void Storage::open() {
  foresee();
  gathering_.wait();
  ++open_;
}

void Storage::close() {
  TUTTI_CHECK(open_ > 0);
  if (--open_ > 0 || owner_.keeping_.zero != Zero::parameters) return;
  owner_.give(weights_);
  weights_.reset();
}

at::Tensor Storage::weight(const View& view) const { return shaped(weights_, view); }

void Storage::take_gradients() {
  if (gradients_.defined()) return;
  owner_.settle(folding_max);
  gradients_ = owner_.take(count_);
}

void Storage::add_product(const View& view, const at::Tensor& dy, const at::Tensor& x) {
  take_gradients();
  const bool first = !touched_[view.slot];
  for (std::size_t i = 0; i < view.slots; ++i) touched_[view.slot + i] = true;
  shaped(gradients_, view).addmm_(dy.t(), x, first ? 0 : 1, 1);
}

at::Tensor Storage::gradient(const View& view) {
  take_gradients();
  at::Tensor gradient = shaped(gradients_, view);
  if (!touched_[view.slot]) gradient.zero_();
  for (std::size_t i = 0; i < view.slots; ++i) touched_[view.slot + i] = true;
  return gradient;
}

void Storage::backward_done(bool last) {
  const Zero zero = owner_.keeping_.zero;
  TUTTI_CHECK(std::find(touched_.begin(), touched_.end(), false) == touched_.end(),
              "every tensor has a gradient after its unit's backward pass");
  if (zero >= Zero::gradients) {
    touched_.assign(touched_.size(), false);
    folding_.emplace_back(owner_.groups_.data.begin_reduce_scatter(gradients_), gradients_);
    gradients_.reset();
    owner_.folding_.push_back(this);
    return;
  }
  at::Tensor* whole = &gradients_;
  if (accumulated_.defined()) {
    touched_.assign(touched_.size(), false);
    if (accumulated_touched_) {
      math::add(gradients_, accumulated_);
    } else {
      accumulated_.copy_(gradients_);
    }
    accumulated_touched_ = !last;
    whole = &accumulated_;
  }
  if (!last) return;
  touched_.assign(touched_.size(), false);
  Group& data = owner_.groups_.data;
  reducing_ = zero == Zero::none ? data.begin_all_reduce(*whole) : data.begin_reduce_scatter(*whole);
}

// The oldest reduction of a microbatch's gradients ends; its sum is added to the owned part.
void Storage::fold() {
  auto [pending, buffer] = std::move(folding_.front());
  folding_.pop_front();
  pending.wait();
  const at::Tensor sum = part(buffer);
  if (accumulated_touched_) {
    math::add(sum, accumulated_);
  } else {
    accumulated_.copy_(sum);
  }
  accumulated_touched_ = true;
  owner_.give(std::move(buffer));
}

at::Tensor Storage::part(const at::Tensor& flat) const { return flat.slice(0, owned_begin_, owned_end_); }

std::vector<Piece> Storage::pieces(std::int64_t begin, std::int64_t end) const {
  std::vector<Piece> all;
  for (const Slot& slot : slots_) {
    // The padding of a cut vocabulary lies behind the values, and belongs to nobody.
    const std::int64_t values = product(slot.box.extent);
    const std::int64_t from = std::max(begin, slot.begin);
    const std::int64_t to = std::min(end, slot.begin + values);
    if (from >= to) continue;
    std::int64_t at = from - begin;
    for (checkpoint::Box& box : checkpoint::boxes_of_range(slot.box, from - slot.begin, to - slot.begin)) {
      const std::int64_t count = product(box.extent);
      all.push_back({&slot, std::move(box), at, count});
      at += count;
    }
  }
  return all;
}

// The owned part of the weights goes to the other ranks.
void Storage::share() {
  if (owner_.keeping_.zero == Zero::optimizer || owner_.keeping_.zero == Zero::gradients) {
    gathering_ = owner_.groups_.data.begin_all_gather(weights_);
  }
}

// ---- parameters

Storage& Parameters::add(std::vector<model::Tensor> tensors, Role role) {
  storages_.push_back(std::make_unique<Storage>(*this, std::move(tensors), role));
  return *storages_.back();
}

Slot Parameters::slot_of(const model::Tensor& tensor, Role role) const {
  const std::int64_t slices = groups_.mesh.tensor;
  const std::int64_t slice = groups_.place.slice;
  Slot slot{.tensor = tensor, .shape = tensor.shape};
  slot.box = {std::vector<std::int64_t>(tensor.shape.size(), 0), tensor.shape};
  const auto cut = [&](std::size_t dimension) {
    const std::int64_t whole = tensor.shape[dimension];
    const std::int64_t each = (whole + slices - 1) / slices;
    slot.shape[dimension] = each;
    slot.box.offset[dimension] = std::min(whole, each * slice);
    slot.box.extent[dimension] = std::min(whole, each * (slice + 1)) - slot.box.offset[dimension];
  };
  switch (tensor.split) {
    case model::Split::whole:
      slot.partial = slices > 1;
      break;
    case model::Split::rows:
      cut(0);
      break;
    case model::Split::columns:
      cut(1);
      break;
    case model::Split::vocabulary:
      cut(0);
      slot.shape[0] = rounded_up(slot.shape[0], math::vocabulary_multiple(keeping_.device));
      break;
  }
  if (tensor.split == model::Split::rows || tensor.split == model::Split::columns) {
    TUTTI_CHECK(slot.shape == slot.box.extent, "the mesh divides the tensor");
  }
  slot.count = product(slot.shape);
  slot.ours = role != Role::second_of_two && !(slot.partial && slice > 0);
  return slot;
}

at::Tensor Parameters::take(std::int64_t count) {
  const auto found = std::find_if(pool_.begin(), pool_.end(),
                                  [&](const at::Tensor& buffer) { return buffer.numel() == count; });
  if (found == pool_.end()) return flat_memory(count, keeping_.type, keeping_.device);
  at::Tensor buffer = *found;
  pool_.erase(found);
  return buffer;
}

void Parameters::give(at::Tensor buffer) { pool_.push_back(std::move(buffer)); }

void Parameters::settle(std::size_t pending_max) {
  while (folding_.size() > pending_max) {
    Storage* const oldest = folding_.front();
    folding_.pop_front();
    oldest->fold();
  }
}

void Parameters::fill(const Source& source, bool with_moments) {
  for (const auto& storage : storages_) {
    const auto set = [&](Kind kind, at::Tensor& target) {
      at::Tensor values = at::zeros({target.numel()}, at::kFloat);
      auto* const data = values.data_ptr<float>();
      for (const Piece& piece : storage->pieces(storage->owned_begin_, storage->owned_end_)) {
        source(kind, piece.slot->tensor, piece.box, {data + piece.at, static_cast<std::size_t>(piece.count)});
      }
      target.copy_(values);
    };
    set(Kind::weight, storage->master_);
    if (with_moments) {
      set(Kind::first_moment, storage->first_);
      set(Kind::second_moment, storage->second_);
    }
  }
}

void Parameters::publish() {
  for (const auto& storage : storages_) {
    if (storage->master_.data_ptr() != storage->own_weights_.data_ptr())
      storage->own_weights_.copy_(storage->master_);
    storage->share();
  }
}

at::Tensor Parameters::owned_gradient(Storage& storage) {
  if (keeping_.zero >= Zero::gradients) return storage.accumulated_;
  return storage.part(storage.accumulated_.defined() ? storage.accumulated_ : storage.gradients_);
}

// What is whole on every slice was computed from some of the rows on each: the sums meet in one message.
void Parameters::sum_partial_gradients() {
  if (groups_.tensor.size() == 1) return;
  std::vector<at::Tensor> partial;
  for (const auto& storage : storages_) {
    const at::Tensor owned = owned_gradient(*storage);
    for (const Slot& slot : storage->slots_) {
      const std::int64_t begin = std::max(slot.begin, storage->owned_begin_);
      const std::int64_t end = std::min(slot.end(), storage->owned_end_);
      if (slot.partial && begin < end) {
        partial.push_back(owned.slice(0, begin - storage->owned_begin_, end - storage->owned_begin_));
      }
    }
  }
  if (partial.empty()) return;
  at::Tensor together = at::cat(partial);
  groups_.tensor.all_reduce(together);
  std::int64_t at = 0;
  for (at::Tensor& one : partial) {
    one.copy_(together.slice(0, at, at + one.numel()));
    at += one.numel();
  }
}

void Parameters::finish_gradients() {
  settle(0);
  for (const auto& storage : storages_) {
    storage->reducing_.wait();
    storage->accumulated_touched_ = false;
  }
  sum_partial_gradients();
  // Where the first and the last stage both hold the embedding, each has the gradient of its use of it.
  if (groups_.ends.size() == 1) return;
  for (const auto& storage : storages_) {
    if (storage->role_ == Role::single) continue;
    at::Tensor gradient = owned_gradient(*storage);
    groups_.ends.all_reduce(gradient);
  }
}

double Parameters::squared_norm() {
  std::vector<at::Tensor> sums;
  for (const auto& storage : storages_) {
    const at::Tensor owned = owned_gradient(*storage);
    // Runs of slots that this rank answers for are summed as one.
    std::int64_t begin = 0;
    std::int64_t end = 0;
    const auto flush = [&] {
      const std::int64_t from = std::max(begin, storage->owned_begin_) - storage->owned_begin_;
      const std::int64_t to = std::min(end, storage->owned_end_) - storage->owned_begin_;
      if (from < to) sums.push_back(math::sum_of_squares(owned.slice(0, from, to)));
    };
    for (const Slot& slot : storage->slots_) {
      if (slot.ours && slot.begin == end) {
        end = slot.end();
      } else if (slot.ours) {
        flush();
        begin = slot.begin;
        end = slot.end();
      }
    }
    flush();
  }
  at::Tensor sum = at::stack(sums).sum().to(at::kCPU).reshape({1});
  // Without ZeRO every replica has all of it.
  (keeping_.zero == Zero::none ? groups_.model : groups_.world).all_reduce(sum);
  return sum.item<double>();
}

double Parameters::update(const UpdateOptions& options) {
  finish_gradients();
  const double norm = std::sqrt(squared_norm());
  if (!std::isfinite(norm)) {
    throw Failure(failed("the gradients are not finite")
                      .remedy("a lower learning rate, or a longer warm-up, keeps training stable"));
  }
  const double scale = options.clip > 0 && norm > options.clip ? options.clip / norm : 1.0;
  math::AdamStep step{.learning_rate = options.learning_rate,
                      .beta1 = options.beta1,
                      .beta2 = options.beta2,
                      .epsilon = options.epsilon,
                      .decay = options.decay,
                      .gradient_scale = scale,
                      .step = options.step};
  for (const auto& storage : storages_) {
    const at::Tensor gradient = owned_gradient(*storage);
    const std::int64_t owned = storage->owned_end_ - storage->owned_begin_;
    const std::int64_t border =
        std::clamp(storage->decaying_end_ - storage->owned_begin_, std::int64_t{0}, owned);
    const auto apply = [&](std::int64_t begin, std::int64_t end, double decay) {
      if (begin == end) return;
      step.decay = decay;
      math::adamw(step, gradient.slice(0, begin, end), storage->master_.slice(0, begin, end),
                  storage->first_.slice(0, begin, end), storage->second_.slice(0, begin, end),
                  storage->own_weights_.slice(0, begin, end));
    };
    apply(0, border, options.decay);
    apply(border, owned, 0);
    storage->share();
  }
  return norm;
}

std::vector<Parameters::Saved> Parameters::saved() {
  std::vector<Saved> all;
  for (const auto& storage : storages_) {
    // Each replica saves its part, also where all of them have everything.
    const std::int64_t each = storage->count_ / groups_.data.size();
    const std::int64_t begin = each * groups_.data.rank();
    const std::int64_t inside = begin - storage->owned_begin_;
    for (const Piece& piece : storage->pieces(begin, begin + each)) {
      if (!piece.slot->ours) continue;
      const auto values = [&](const at::Tensor& owned) {
        return owned.slice(0, inside + piece.at, inside + piece.at + piece.count);
      };
      all.push_back({Kind::weight, &piece.slot->tensor, piece.box, values(storage->master_)});
      all.push_back({Kind::first_moment, &piece.slot->tensor, piece.box, values(storage->first_)});
      all.push_back({Kind::second_moment, &piece.slot->tensor, piece.box, values(storage->second_)});
    }
  }
  return all;
}

std::int64_t Parameters::bytes() const {
  std::int64_t sum = 0;
  for (const auto& storage : storages_) {
    for (const at::Tensor* tensor : {&storage->weights_, &storage->gradients_, &storage->accumulated_,
                                     &storage->first_, &storage->second_}) {
      if (tensor->defined()) sum += static_cast<std::int64_t>(tensor->nbytes());
    }
    if (storage->master_.data_ptr() != storage->own_weights_.data_ptr()) {
      sum += static_cast<std::int64_t>(storage->master_.nbytes());
    }
  }
  return sum;
}

// ---- initial values

namespace {

// A number in (0, 1] from 53 bits.
double unit(std::uint64_t bits) { return (static_cast<double>(bits >> 11) + 1.0) * 0x1.0p-53; }

double normal(std::uint64_t key, std::uint64_t element) {
  const double radius = std::sqrt(-2.0 * std::log(unit(mixed(key ^ (2 * element)))));
  return radius * std::cos(2.0 * std::numbers::pi * unit(mixed(key ^ (2 * element + 1))));
}

// The elements of a box in the order of its rows, each with its place in the whole tensor.
template <class F>
void for_elements(const std::vector<std::int64_t>& shape, const checkpoint::Box& box, const F& each) {
  const std::int64_t columns = box.extent.back();
  const std::int64_t rows = product(box.extent) / columns;
  const std::int64_t row_length = shape.back();
  const std::int64_t first_row = shape.size() == 2 ? box.offset.front() : 0;
  at::parallel_for(0, rows, std::max<std::int64_t>(1, 4096 / columns),
                   [&](std::int64_t begin, std::int64_t end) {
                     for (std::int64_t row = begin; row < end; ++row) {
                       const std::int64_t place = (first_row + row) * row_length + box.offset.back();
                       for (std::int64_t column = 0; column < columns; ++column)
                         each(row * columns + column, place + column);
                     }
                   });
}

}  // namespace

Parameters::Source initial_values(std::uint64_t seed) {
  return [seed](Kind kind, const model::Tensor& tensor, const checkpoint::Box& box, std::span<float> out) {
    TUTTI_CHECK(tensor.shape.size() <= 2);
    if (kind != Kind::weight || tensor.deviation == 0) {
      std::fill(out.begin(), out.end(), kind == Kind::weight && tensor.starts_at_one ? 1.0F : 0.0F);
      return;
    }
    const std::uint64_t key = mixed(hash64(as_bytes(tensor.name), seed));
    for_elements(tensor.shape, box, [&](std::int64_t at, std::int64_t place) {
      out[static_cast<std::size_t>(at)] =
          static_cast<float>(tensor.deviation * normal(key, static_cast<std::uint64_t>(place)));
    });
  };
}

}  // namespace tutti::train
