#include "comm/device_share.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.hpp"

namespace tutti::comm {
namespace {

// Pieces of blocks are whole numbers of elements of every type, and begin where a device likes it.
constexpr std::size_t piece_unit_bytes = 256;

// Whether a rank's input has a block for each member.
bool spreads(Operation operation) {
  return operation == Operation::reduce_scatter || operation == Operation::all_to_all ||
         operation == Operation::scatter;
}

bool adds_up(Operation operation) {
  return operation == Operation::all_reduce || operation == Operation::reduce ||
         operation == Operation::reduce_scatter;
}

}  // namespace

std::size_t DeviceShare::half_for(const Call& call, int size) {
  const std::size_t parts = spreads(call.operation) ? static_cast<std::size_t>(size) : 1;
  const std::size_t piece = (call.bytes() + piece_unit_bytes - 1) / piece_unit_bytes * piece_unit_bytes;
  return std::bit_ceil(std::clamp(piece * parts, half_bytes_min, half_bytes_max));
}

DeviceShare::DeviceShare(std::vector<Peer> peers, int me) : peers_(std::move(peers)), me_(me) {
  TUTTI_CHECK(peers_.size() <= DeviceLine::ranks_max);
}

void DeviceShare::use_staging(const std::vector<std::byte*>& stagings, std::size_t half_bytes) {
  for (std::size_t member = 0; member < size(); ++member) peers_[member].staging = stagings[member];
  half_bytes_ = half_bytes;
}

// Whether this rank has something that others want.
bool DeviceShare::gives(const Call& call) const {
  switch (call.operation) {
    case Operation::broadcast:
    case Operation::scatter:
      return call.root == me_;
    case Operation::recv:
    case Operation::barrier:
      return false;
    case Operation::all_reduce:
    case Operation::reduce:
    case Operation::reduce_scatter:
    case Operation::all_gather:
    case Operation::all_to_all:
    case Operation::gather:
    case Operation::send:
      return true;
  }
  return false;
}

// Whether this rank wants something that the member gives.
bool DeviceShare::takes_from(const Call& call, std::size_t member) const {
  switch (call.operation) {
    case Operation::broadcast:
      return call.root != me_ && static_cast<int>(member) == call.root;
    case Operation::scatter:
      return static_cast<int>(member) == call.root;
    case Operation::reduce:
    case Operation::gather:
      return call.root == me_;
    case Operation::recv:
      return static_cast<int>(member) != me_;
    case Operation::send:
    case Operation::barrier:
      return false;
    case Operation::all_reduce:
    case Operation::reduce_scatter:
    case Operation::all_gather:
    case Operation::all_to_all:
      return true;
  }
  return false;
}

FlagStep DeviceShare::after_caller() {
  ++inputs_;
  add(FlagStep::Kind::wait, mine().input, inputs_);
  return {FlagStep::Kind::write, &mine().input.value, inputs_};
}

// Leaves a note of what is called, and reads those of the others: of two that differ, the later one sees it.
int DeviceShare::post(std::uint32_t fingerprint) {
  const std::uint32_t first = last_.load(std::memory_order_relaxed) + 1;
  const std::size_t at = first % DeviceLine::calls_max;
  mine().calls[at].store(static_cast<std::uint64_t>(first) << 32 | fingerprint);
  for (std::size_t member = 0; member < size(); ++member) {
    const std::uint64_t theirs = peers_[member].line->calls[at].load();
    if (theirs >> 32 == first && static_cast<std::uint32_t>(theirs) != fingerprint)
      return static_cast<int>(member);
  }
  return -1;
}

Outcome DeviceShare::enqueue(DeviceQueue& queue, const Call& call, std::uint32_t fingerprint,
                             Ticket& ticket) {
  if (const int other = post(fingerprint); other >= 0) return Outcome::mismatch(other);
  const std::size_t block = call.bytes();
  const std::size_t parts = spreads(call.operation) ? size() : 1;
  const std::size_t piece = half_bytes_ / parts / piece_unit_bytes * piece_unit_bytes;
  ticket.first = last_.load(std::memory_order_relaxed) + 1;
  std::size_t offset = 0;
  do {
    const Chunk chunk{last_.load(std::memory_order_relaxed) + 1, offset, std::min(piece, block - offset)};
    // Before anything waits for it, so that a release knows of it.
    last_.store(chunk.number, std::memory_order_release);
    auto done = enqueue_chunk(queue, call, chunk, offset == 0);
    if (!done) return Outcome::failed(done.error().text());
    offset += piece;
  } while (offset < block);
  ticket.last = last_.load(std::memory_order_relaxed);
  return {};
}

Outcome DeviceShare::enclose(DeviceQueue& queue, const std::function<Outcome()>& launch, Ticket& ticket) {
  const std::uint32_t number = last_.load(std::memory_order_relaxed) + 1;
  last_.store(number, std::memory_order_release);
  ticket = {number, number};
  add(FlagStep::Kind::write, mine().began, number);
  if (auto put = put_flags(queue); !put) return Outcome::failed(put.error().text());
  if (auto launched = launch(); !launched.ok()) return launched;
  add(FlagStep::Kind::write, mine().finished, number);
  if (auto put = put_flags(queue); !put) return Outcome::failed(put.error().text());
  return {};
}

Result<> DeviceShare::enqueue_chunk(DeviceQueue& queue, const Call& call, const Chunk& chunk, bool first) {
  const auto me = static_cast<std::size_t>(me_);
  const bool giving = gives(call);
  if (first) add(FlagStep::Kind::write, mine().began, chunk.number);
  for (std::size_t member = 0; giving && member < size(); ++member) {
    if (member != me) add(FlagStep::Kind::wait, mine().done[member], chunk.number - 2);
  }
  if (auto put = put_flags(queue); !put) return put;
  if (giving && size() > 1) {
    if (auto copied = copy_in(queue, call, chunk); !copied) return copied;
  }
  for (std::size_t member = 0; member < size(); ++member) {
    if (member != me) add(FlagStep::Kind::write, peers_[member].line->ready[me], chunk.number);
  }
  for (std::size_t member = 0; member < size(); ++member) {
    if (member != me && takes_from(call, member))
      add(FlagStep::Kind::wait, mine().ready[member], chunk.number);
  }
  if (auto put = put_flags(queue); !put) return put;
  if (auto taken = take(queue, call, chunk); !taken) return taken;
  for (std::size_t member = 0; member < size(); ++member) {
    if (member != me) add(FlagStep::Kind::write, peers_[member].line->done[me], chunk.number);
  }
  add(FlagStep::Kind::write, mine().finished, chunk.number);
  return put_flags(queue);
}

Result<> DeviceShare::copy_in(DeviceQueue& queue, const Call& call, const Chunk& chunk) {
  const std::size_t block = call.bytes();
  std::byte* const to = staged(static_cast<std::size_t>(me_), chunk);
  if (!spreads(call.operation)) return queue.copy(to, call.in + chunk.offset, chunk.bytes);
  if (chunk.bytes == block) return queue.copy(to, call.in, block * size());
  for (std::size_t member = 0; member < size(); ++member) {
    auto copied = queue.copy(to + member * chunk.bytes, call.in + member * block + chunk.offset, chunk.bytes);
    if (!copied) return copied;
  }
  return {};
}

Result<> DeviceShare::take(DeviceQueue& queue, const Call& call, const Chunk& chunk) {
  const auto me = static_cast<std::size_t>(me_);
  const std::size_t block = call.bytes();
  const bool parted = spreads(call.operation);
  // My own part needs no way round.
  const auto source = [&](std::size_t member) -> const std::byte* {
    if (member == me) return call.in + (parted ? me * block : 0) + chunk.offset;
    return staged(member, chunk) + (parted ? me * chunk.bytes : 0);
  };
  if (adds_up(call.operation)) {
    if (!takes_from(call, me) || chunk.bytes == 0) return {};
    std::array<const std::byte*, DeviceLine::ranks_max> sources{};
    for (std::size_t member = 0; member < size(); ++member) sources[member] = source(member);
    const Reduce how{call.type, call.reduction, call.reduction == Reduction::average ? size() : 0};
    return queue.reduce(how, call.out + chunk.offset, std::span(sources.data(), size()),
                        chunk.bytes / size_of(call.type));
  }
  const bool collects = call.operation == Operation::all_gather || call.operation == Operation::gather ||
                        call.operation == Operation::all_to_all;
  for (std::size_t member = 0; member < size(); ++member) {
    if (!takes_from(call, member) || chunk.bytes == 0) continue;
    std::byte* const target = call.out + (collects ? member * block : 0) + chunk.offset;
    if (source(member) == target) continue;
    if (auto copied = queue.copy(target, source(member), chunk.bytes); !copied) return copied;
  }
  return {};
}

void DeviceShare::add(FlagStep::Kind kind, DeviceFlag& flag, std::uint32_t value) {
  steps_[steps_count_++] = {kind, &flag.value, value};
}

Result<> DeviceShare::put_flags(DeviceQueue& queue) {
  if (steps_count_ == 0) return {};
  const std::size_t count = std::exchange(steps_count_, 0);
  return queue.flags(std::span(steps_.data(), count));
}

int DeviceShare::missing(const Ticket& ticket) const {
  for (std::size_t member = 0; member < size(); ++member) {
    if (static_cast<int>(member) != me_ && !mine().ready[member].reached(ticket.last))
      return static_cast<int>(member);
  }
  return -1;
}

void DeviceShare::release() {
  for (std::size_t member = 0; member < size(); ++member) {
    if (static_cast<int>(member) != me_) peers_[member].line->poisoned.value.store(1);
  }
  const std::uint32_t last = last_.load(std::memory_order_acquire);
  for (std::size_t member = 0; member < size(); ++member) {
    mine().ready[member].value.store(last, std::memory_order_release);
    mine().done[member].value.store(last, std::memory_order_release);
  }
}

}  // namespace tutti::comm
