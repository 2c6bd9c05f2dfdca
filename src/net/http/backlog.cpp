#include "net/http/backlog.hpp"

#include <algorithm>
#include <new>
#include <utility>
#include <vector>

#include "base/check.hpp"

namespace tutti::net {
namespace {

// Of a text in a queue, beside its bytes: many readers may wait for many small ones.
constexpr std::size_t entry_bytes = 96;
// Readers are let go down to this part of the budget, so that not each further text looks for the slowest.
constexpr std::size_t relief_part_of_four = 3;
// Less than this is soon used again.
constexpr std::size_t give_back_bytes_min = std::size_t{64} << 20;

}  // namespace

void Backlog::hold(Reader& reader, const std::string& text) {
  // First what there may be no memory for: either all of it is counted or nothing.
  const auto held = texts_.try_emplace(&text, 0).first;
  try {
    if (reader.texts_ == 0) readers_.insert(&reader);
  } catch (const std::bad_alloc&) {
    if (held->second == 0) texts_.erase(held);
    throw;
  }
  ++held_;
  if (reader.texts_++ == 0) reader.took_at_ = held_;
  reader.waiting_bytes_ += text.size() + entry_bytes;
  bytes_ += entry_bytes;
  if (held->second++ == 0) bytes_ += text.size();
  bytes_most_ = std::max(bytes_most_, bytes_);
  if (bytes_ > bytes_max_ + leaving_bytes_) make_room();
}

void Backlog::release(Reader& reader, const std::string& text) {
  const auto held = texts_.find(&text);
  TUTTI_CHECK(held != texts_.end() && reader.texts_ > 0, "what is released was held");
  reader.took_at_ = held_;
  if (--reader.texts_ == 0) readers_.erase(&reader);
  reader.waiting_bytes_ -= text.size() + entry_bytes;
  bytes_ -= entry_bytes;
  leaving_bytes_ -= std::exchange(reader.leaving_bytes_, 0);
  if (--held->second == 0) {
    bytes_ -= text.size();
    texts_.erase(held);
  }
  if (bytes_most_ < give_back_bytes_min || bytes_ > bytes_most_ / 4) return;
  bytes_most_ = bytes_;
  if (give_back_) give_back_();
}

double Backlog::slowness(const Reader& reader) const {
  return static_cast<double>(reader.waiting_bytes_) * static_cast<double>(1 + held_ - reader.took_at_);
}

void Backlog::make_room() {
  if (makes_room_) return;
  std::vector<Reader*> slowest;
  try {
    slowest.assign(readers_.begin(), readers_.end());
  } catch (const std::bad_alloc&) {
    return;  // the next text looks again
  }
  makes_room_ = true;
  std::sort(slowest.begin(), slowest.end(), [this](const Reader* one, const Reader* other) {
    if (one->spared_ != other->spared_) return other->spared_;
    return slowness(*one) > slowness(*other);
  });
  for (Reader* reader : slowest) {
    if (bytes_ <= bytes_max_ / 4 * relief_part_of_four + leaving_bytes_) break;
    // One that has nothing waiting any more is not asked for room.
    if (!readers_.contains(reader) || reader->leaving_bytes_ > 0) continue;
    reader->leaving_bytes_ = reader->let_go();
    leaving_bytes_ += reader->leaving_bytes_;
  }
  makes_room_ = false;
}

}  // namespace tutti::net
