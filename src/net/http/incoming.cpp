#include "net/http/incoming.hpp"

#include <algorithm>
#include <new>
#include <utility>
#include <vector>

namespace tutti::net {
namespace {

// Unfinished ones are let go down to this part of the budget, so that not each further piece looks for the
// slowest.
constexpr std::size_t room_parts = 8;
// Less than this is soon used again.
constexpr std::size_t trimmed_bytes_min = std::size_t{64} << 20;

}  // namespace

Incoming::Arrival::Arrival(std::shared_ptr<Incoming> incoming, std::string address,
                           std::function<void()> let_go)
    : incoming_(std::move(incoming)), address_(std::move(address)), let_go_(std::move(let_go)) {}

void Incoming::Arrival::hold(std::size_t bytes) {
  if (was_let_go_ || is_complete_ || bytes == bytes_) return;
  const auto incoming = incoming_;
  ++incoming->pieces_;
  if (bytes_ == 0) begun_at_ = incoming->pieces_;
  incoming->change(*this, bytes);
  incoming->make_room(incoming->total_, incoming->limits_.bytes);
  const auto here = incoming->by_address_.find(address_);
  if (here != incoming->by_address_.end())
    incoming->make_room(here->second, incoming->limits_.bytes_per_address);
}

void Incoming::Arrival::complete() {
  if (was_let_go_ || is_complete_ || bytes_ == 0) return;
  is_complete_ = true;
  for (Sum* sum : {&incoming_->total_, &incoming_->by_address_[address_]}) {
    sum->unfinished.erase(this);
    sum->complete_bytes += bytes_;
  }
}

void Incoming::Arrival::release() {
  if (bytes_ == 0) return;
  Incoming& incoming = *incoming_;
  if (was_let_go_) {
    incoming.leaving_bytes_ -= std::exchange(bytes_, 0);
  } else {
    incoming.change(*this, 0);
  }
  is_complete_ = false;
  if (incoming.bytes_most_ < trimmed_bytes_min || incoming.bytes() > incoming.bytes_most_ / 4) return;
  incoming.bytes_most_ = incoming.bytes();
  if (incoming.give_back_) incoming.give_back_();
}

bool Incoming::has_room(const std::string& address, std::size_t bytes) const {
  const auto here = by_address_.find(address);
  const std::size_t complete_here = here == by_address_.end() ? 0 : here->second.complete_bytes;
  return total_.complete_bytes + bytes < limits_.bytes && complete_here + bytes < limits_.bytes_per_address;
}

// In all sums; without bytes it is in none of them.
void Incoming::change(Arrival& arrival, std::size_t bytes) {
  const auto here = by_address_.try_emplace(arrival.address_).first;
  // First what there may be no memory for: either all of it is counted or nothing.
  if (bytes > 0 && !arrival.is_complete_) {
    try {
      total_.unfinished.insert(&arrival);
      here->second.unfinished.insert(&arrival);
    } catch (const std::bad_alloc&) {
      total_.unfinished.erase(&arrival);
      if (here->second.bytes == 0) by_address_.erase(here);
      throw;
    }
  }
  for (Sum* sum : {&total_, &here->second}) {
    sum->bytes += bytes - arrival.bytes_;
    if (arrival.is_complete_) sum->complete_bytes += bytes - arrival.bytes_;
    if (bytes == 0) sum->unfinished.erase(&arrival);
  }
  arrival.bytes_ = bytes;
  if (here->second.bytes == 0) by_address_.erase(here);
  bytes_most_ = std::max(bytes_most_, this->bytes());
}

double Incoming::slowness(const Arrival& arrival) const {
  return static_cast<double>(arrival.bytes_) * static_cast<double>(1 + pieces_ - arrival.begun_at_);
}

void Incoming::make_room(const Sum& sum, std::size_t bytes_max) {
  if (sum.bytes <= bytes_max) return;
  std::vector<Arrival*> slowest;
  try {
    slowest.assign(sum.unfinished.begin(), sum.unfinished.end());
  } catch (const std::bad_alloc&) {
    return;  // the next piece looks again
  }
  std::sort(slowest.begin(), slowest.end(),
            [this](const Arrival* one, const Arrival* other) { return slowness(*one) > slowness(*other); });
  std::size_t left_bytes = sum.bytes;
  for (Arrival* arrival : slowest) {
    if (left_bytes <= bytes_max - bytes_max / room_parts) break;
    left_bytes -= arrival->bytes_;
    let_go(*arrival);
  }
}

void Incoming::let_go(Arrival& arrival) {
  const std::size_t bytes = arrival.bytes_;
  change(arrival, 0);
  arrival.bytes_ = bytes;
  arrival.was_let_go_ = true;
  leaving_bytes_ += bytes;
  arrival.let_go_();
}

}  // namespace tutti::net
