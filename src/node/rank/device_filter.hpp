// Which devices of the machine a rank may open: what harms nobody, and the GPUs that it was given. By a
// program of the kernel at the cgroup that holds the rank (cgroups of version 2), or by the controller
// `devices` of version 1. Made by the shim, single-threaded; asked by the agent, on any thread, whether it
// can be had.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "node/rank/hold.hpp"

namespace tutti::rank {

// A character device. Ranks open no others: blocks are disks.
struct DeviceNumber {
  std::uint32_t major = 0;
  std::uint32_t minor = 0;
  bool all_of_major = false;

  friend bool operator==(const DeviceNumber&, const DeviceNumber&) = default;
};

// What is there of what a rank with these GPUs may open. They are named as in CUDA_VISIBLE_DEVICES; which
// file belongs to which name the driver tells, and where it does not, all of its files may be opened.
std::vector<DeviceNumber> devices_of_a_rank(const std::vector<std::string>& gpus,
                                            const std::string& dev = "/dev",
                                            const std::string& proc = "/proc");

class DeviceFilter {
 public:
  // Lets everything through, until it is made.
  explicit DeviceFilter(std::string name, std::string root = "/sys/fs/cgroup");
  DeviceFilter(const DeviceFilter&) = delete;
  DeviceFilter& operator=(const DeviceFilter&) = delete;
  ~DeviceFilter();

  // For what that cgroup holds, or for a cgroup of its own.
  Result<> make(const Hold& hold, const std::vector<DeviceNumber>& allowed);
  // The calling process, and so all it starts, is under it. False if it is not.
  bool enter(bool is_held) const;

 private:
  Result<> make_controller(const std::vector<DeviceNumber>& allowed);

  std::string name_;
  std::string root_;
  bool by_hold_ = false;
  std::string folder_;  // of a cgroup of its own, "" without
};

// Makes one and removes it, under a name that no rank has.
bool can_filter_devices(const std::string& name, const std::string& root = "/sys/fs/cgroup");

}  // namespace tutti::rank
