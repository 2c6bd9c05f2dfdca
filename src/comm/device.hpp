// Collectives on device memory. Where each rank has a GPU of its own they are NCCL's; ranks that share one
// GPU, which NCCL refuses, work on one another's memory through CUDA IPC; everything else goes through host
// memory. Which of the three it is, all ranks conclude alike from what they tell one another. One thread at a
// time.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "base/result.hpp"
#include "comm/allocate.hpp"
#include "comm/collectives.hpp"
#include "comm/cuda.hpp"
#include "comm/nccl.hpp"

namespace tutti::comm {

class DeviceCollectives {
 public:
  // Uses the group's host collectives to agree with the others.
  DeviceCollectives(Collectives& host, int size, int me) : host_(host), size_(size), me_(me) {}
  ~DeviceCollectives();

  // `ready` marks when the input is complete on the caller's stream. Returns when the output is.
  Outcome run(const Call& call, cuda::Event ready, const Limits& limits);

  // How the last operation went.
  const char* way() const;

 private:
  enum class Way { nccl, ipc, host };
  struct Place;  // where a rank's data lies, as it tells the others

  Outcome run_ready(const Call& call, const Limits& limits);
  Result<> prepare(cuda::Context context);
  Outcome meet(const Call& call, const Limits& limits, std::vector<Place>& places);
  Way choose(const Call& call, const std::vector<Place>& places) const;

  Outcome run_nccl(const Call& call, const Limits& limits);
  Outcome run_host(const Call& call, const Limits& limits);
  Outcome run_ipc(const Call& call, const std::vector<Place>& places, const Limits& limits);
  Result<> reduce_ipc(const Call& call, const std::vector<const std::byte*>& in,
                      const std::vector<std::byte*>& out);
  Result<> move_ipc(const Call& call, const std::vector<const std::byte*>& in);
  Result<> launch(const Call& call, const std::vector<cuda::Pointer>& table, std::size_t sources,
                  std::size_t targets, std::size_t count);
  Result<std::byte*> reach(const Place& place, bool input);
  Result<cuda::Function> kernel(DataType type, Reduction reduction);
  Outcome finish(const Limits& limits);

  Collectives& host_;
  int size_;
  int me_;
  Way way_ = Way::host;
  cuda::Context context_ = nullptr;
  cuda::Stream stream_ = nullptr;
  cuda::DeviceId device_{};
  std::unique_ptr<Nccl> nccl_;
  SharedBuffer staging_;
  bool staging_registered_ = false;
  SharedBuffer table_;  // of pointers, which the kernels read
  std::map<std::pair<DataType, Reduction>, cuda::Function> kernels_;
  std::map<std::pair<pid_t, std::uint64_t>, cuda::Pointer> mapped_;
};

}  // namespace tutti::comm
