#include "comm/slices.hpp"

#include <algorithm>
#include <array>
#include <span>

#include "comm/lines.hpp"
#include "comm/staging.hpp"

namespace tutti::comm {

SlicedReduction::SlicedReduction(Slots& slots, const SlicedWork& work)
    : slots_(slots),
      work_(work),
      members_(static_cast<std::size_t>(slots.size())),
      me_(static_cast<std::size_t>(slots.me())),
      bytes_(work.count * size_of(work.how.type)),
      slice_bytes_max_(Slots::slot_bytes / members_ / line_bytes * line_bytes),
      chunk_bytes_(slice_bytes_max_ * members_),
      chunks_((bytes_ + chunk_bytes_ - 1) / chunk_bytes_),
      wants_(work.root < 0 || work.root == slots.me()),
      store_(store_for(bytes_)),
      first_ticket_(slots.take_tickets(chunks_)),
      first_sum_(slots.take_sums(chunks_)),
      sources_(members_) {}

Outcome SlicedReduction::run(const Limits& limits) {
  for (std::size_t i = 0; i < chunks_ + 2; ++i) {
    if (i < chunks_) {
      if (auto done = copy_in(i, limits); !done.ok()) return done;
    }
    if (i >= 1 && i - 1 < chunks_) {
      if (auto done = add_up(i - 1, limits); !done.ok()) return done;
    }
    if (i >= 2 && wants_) {
      if (auto done = copy_out(i - 2, limits); !done.ok()) return done;
    }
  }
  return {};
}

SlicedReduction::Slice SlicedReduction::slice(std::size_t chunk, std::size_t member) const {
  const std::size_t begin = chunk * chunk_bytes_;
  const std::size_t length = std::min(chunk_bytes_, bytes_ - begin);
  const std::size_t each = std::min(slice_bytes_max_, part_bytes(length, members_));
  const std::size_t from = std::min(length, member * each);
  return {begin + from, std::min(each, length - from)};
}

Outcome SlicedReduction::copy_in(std::size_t chunk, const Limits& limits) {
  return slots_.show(ticket(chunk), limits, [&](std::byte* slot) {
    for (std::size_t m = 0; m < members_; ++m) {
      if (m == me_) continue;
      const Slice theirs = slice(chunk, m);
      copy_bytes(slot + m * slice_bytes_max_, work_.in + theirs.begin, theirs.bytes, work_.staging);
    }
  });
}

Outcome SlicedReduction::add_up(std::size_t chunk, const Limits& limits) {
  if (auto there = slots_.see_all(ticket(chunk), limits); !there.ok()) return there;
  const Slice mine = slice(chunk, me_);
  for (std::size_t m = 0; m < members_; ++m) {
    sources_[m] = m == me_ ? work_.in + mine.begin
                           : slots_.shown(static_cast<int>(m), ticket(chunk)) + me_ * slice_bytes_max_;
  }
  std::byte* const result = slots_.own_sum(sum(chunk));
  const std::array<std::byte*, 2> targets{result, wants_ ? work_.out + mine.begin : nullptr};
  // Around the caches both copies are written at once; else the sum is shown first, and copied from the
  // cache.
  const bool both = wants_ && work_.staging == Store::stream;
  comm::reduce(work_.how, std::span(targets).first(both ? 2 : 1), sources_,
               mine.bytes / size_of(work_.how.type), work_.staging);
  slots_.show_sum(sum(chunk));
  if (wants_ && !both) copy_bytes(work_.out + mine.begin, result, mine.bytes, store_);
  return {};
}

Outcome SlicedReduction::copy_out(std::size_t chunk, const Limits& limits) {
  for (std::size_t m = 0; m < members_; ++m) {
    if (m == me_) continue;
    const int member = static_cast<int>(m);
    if (auto there = slots_.see_sum(member, sum(chunk), limits); !there.ok()) return there;
    const Slice theirs = slice(chunk, m);
    copy_bytes(work_.out + theirs.begin, slots_.shown_sum(member, sum(chunk)), theirs.bytes, store_);
  }
  return {};
}

}  // namespace tutti::comm
