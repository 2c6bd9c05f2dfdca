// Collectives on device memory. Where each rank has a GPU of its own they are NCCL's; ranks that share one
// GPU, which NCCL refuses, work on one another's staging memory through CUDA IPC; everything else goes
// through host memory. Which of the three it is, all ranks conclude alike at the group's first operation;
// from then on an operation is put on the group's stream, and the host goes on. One thread at a time, except
// where it says otherwise.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "base/result.hpp"
#include "comm/allocate.hpp"
#include "comm/collectives.hpp"
#include "comm/cuda.hpp"
#include "comm/cuda_queue.hpp"
#include "comm/device_share.hpp"
#include "comm/nccl.hpp"
#include "comm/watchdog.hpp"

namespace tutti::comm {

class DeviceCollectives : public Watched {
 public:
  // `messages`: the group is a pair of ranks, which never waits for its peer's host once it is agreed.
  DeviceCollectives(int size, int me, bool messages) : size_(size), me_(me), messages_(messages) {}
  ~DeviceCollectives() override;

  // Any thread. Whether operations are put on a stream; false before the first one.
  bool streams() const;
  // Any thread. Whether they go through the host, on threads; false before the first one.
  bool through_host() const { return way_.load(std::memory_order_acquire) == Way::host; }
  // Any thread. How operations go: "nccl", "ipc", "host", or "" before the first.
  const char* way() const;

  // Where the input is complete: at the event, or, if there is none, with what is on the stream now.
  struct Input {
    cuda::Context context = nullptr;
    cuda::Event event = nullptr;
    cuda::Stream stream = nullptr;
  };
  // Uses the group's host collectives to agree with the others. With a ticket the operation is on the group's
  // stream; without one it went through the host and is done.
  Outcome run(Collectives& host, const Call& call, const Input& input, const Limits& limits,
              std::optional<Ticket>& ticket);

  // Any thread. What is put on the caller's stream from now on comes after the operation.
  Result<> follow(cuda::Stream caller, const Ticket& ticket) const;

  bool began(const Ticket& ticket) const override { return share_->began(ticket); }
  bool finished(const Ticket& ticket) const override { return share_->finished(ticket); }
  int missing(const Ticket& ticket) const override { return share_->missing(ticket); }
  std::string problem() override { return nccl_ ? nccl_->problem() : ""; }
  void release() override;
  bool poisoned() const override { return streams() && share_->poisoned(); }

 private:
  enum class Way { undecided, nccl, ipc, host };
  struct Introduction;  // what a rank tells the others of itself
  struct Staging;       // and of its new staging memory

  Result<> prepare(cuda::Context context);
  Outcome agree(Collectives& host, const Limits& limits);
  Way choose(const std::vector<Introduction>& all) const;
  Outcome join_nccl(Collectives& host, const Limits& limits);
  Outcome meet_ipc(Collectives& host, const std::vector<Introduction>& all, const Limits& limits);
  Outcome grow(Collectives& host, std::size_t half_bytes, const Limits& limits);
  Outcome drain(const Limits& limits) const;
  Outcome run_host(Collectives& host, const Call& call, const Limits& limits);
  Outcome finish_stream(const Limits& limits) const;
  Result<> begin_after(const Input& input);
  Result<> check_places(const Call& call) const;
  template <class Told>
  Outcome tell(Collectives& host, const Told& mine, std::vector<Told>& all, const Limits& limits) const;
  Outcome all_say_yes(Collectives& host, bool mine, const Limits& limits, bool& all) const;

  int size_;
  int me_;
  bool messages_;
  std::atomic<Way> way_{Way::undecided};
  cuda::Context context_ = nullptr;
  cuda::DeviceId device_{};
  std::unique_ptr<CudaQueue> queue_;
  std::unique_ptr<Nccl> nccl_;

  SharedBuffer line_;  // this rank's page
  bool line_registered_ = false;
  SharedMappings mappings_;        // of the others' pages
  std::vector<void*> registered_;  // those of them that the driver knows
  std::unique_ptr<DeviceShare> share_;
  cuda::Pointer staging_ = 0;                 // this rank's
  std::vector<cuda::Pointer> peer_stagings_;  // as opened here; 0 for this rank
  std::size_t half_bytes_limit_ = DeviceShare::half_bytes_max;

  SharedBuffer host_staging_;
  bool host_staging_registered_ = false;
};

}  // namespace tutti::comm
