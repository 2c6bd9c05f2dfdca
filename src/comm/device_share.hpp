// Collectives of ranks that share one device, without a word between their hosts: each rank copies what the
// others want into its staging memory, says so with a number, waits for theirs, and takes what it wants from
// all stagings in the order of the ranks. All of it is put on a stream and runs there. One thread at a time,
// except where it says otherwise.
//
//   chunk n   wait until all are done with chunk n-2     (staging has two halves)
//             copy in, ready = n, wait for ready n of those it reads
//             add up or copy out, done = n
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <vector>

#include "comm/call.hpp"
#include "comm/device_line.hpp"
#include "comm/device_queue.hpp"
#include "comm/outcome.hpp"

namespace tutti::comm {

class DeviceShare {
 public:
  // A rank's page, and its staging memory of two halves, as this process reaches them.
  struct Peer {
    DeviceLine* line = nullptr;
    std::byte* staging = nullptr;
  };

  // A half of staging holds at most this much: larger operations are cut.
  static constexpr std::size_t half_bytes_max = std::size_t{64} << 20;
  static constexpr std::size_t half_bytes_min = std::size_t{1} << 20;
  // The half that an operation asks for.
  static std::size_t half_for(const Call& call, int size);

  DeviceShare(std::vector<Peer> peers, int me);

  // Between operations, when all of them are done on every rank.
  void use_staging(const std::vector<std::byte*>& stagings, std::size_t half_bytes);
  std::size_t half_bytes() const { return half_bytes_; }

  // To be put on the caller's stream: the operation that is enqueued next begins after it.
  FlagStep after_caller();

  // Puts the operation on the queue. A mismatch names who is known to be in another one.
  Outcome enqueue(DeviceQueue& queue, const Call& call, std::uint32_t fingerprint, Ticket& ticket);

  // Around an operation that something else puts on the queue's stream: marks where it begins and ends.
  Outcome enclose(DeviceQueue& queue, const std::function<Outcome()>& launch, Ticket& ticket);

  // Any thread.
  FlagStep end_of(const Ticket& ticket) const {
    return {FlagStep::Kind::wait, &mine().finished.value, ticket.last};
  }
  bool began(const Ticket& ticket) const { return mine().began.reached(ticket.first); }
  bool finished(const Ticket& ticket) const { return mine().finished.reached(ticket.last); }
  bool finished_all() const { return mine().finished.reached(last_.load(std::memory_order_acquire)); }
  // The member that has not come to the operation, -1 if all have.
  int missing(const Ticket& ticket) const;
  // After a fault: tells the others that nothing of this rank is to be believed any more, then ends what its
  // own stream waits for.
  void release();
  bool poisoned() const { return mine().poisoned.value.load(std::memory_order_acquire) != 0; }

 private:
  struct Chunk {
    std::uint32_t number = 0;
    std::size_t offset = 0;  // in each block
    std::size_t bytes = 0;   // of each block
  };

  DeviceLine& mine() const { return *peers_[static_cast<std::size_t>(me_)].line; }
  std::size_t size() const { return peers_.size(); }
  int post(std::uint32_t fingerprint);
  Result<> enqueue_chunk(DeviceQueue& queue, const Call& call, const Chunk& chunk, bool first);
  Result<> copy_in(DeviceQueue& queue, const Call& call, const Chunk& chunk);
  Result<> take(DeviceQueue& queue, const Call& call, const Chunk& chunk);
  bool gives(const Call& call) const;
  bool takes_from(const Call& call, std::size_t member) const;
  std::byte* staged(std::size_t member, const Chunk& chunk) const {
    return peers_[member].staging + (chunk.number % 2) * half_bytes_;
  }
  void add(FlagStep::Kind kind, DeviceFlag& flag, std::uint32_t value);
  Result<> put_flags(DeviceQueue& queue);

  std::vector<Peer> peers_;
  int me_;
  std::size_t half_bytes_ = 0;
  std::atomic<std::uint32_t> last_{0};  // the last chunk that was put on a queue
  std::uint32_t inputs_ = 0;
  std::array<FlagStep, DeviceQueue::steps_max> steps_;
  std::size_t steps_count_ = 0;
};

}  // namespace tutti::comm
