#include "serve/cpu/memory.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

namespace tutti::serve::cpu {
namespace {

constexpr std::uint64_t mib = std::uint64_t{1} << 20;

// The files of a machine with 1 GiB of free memory, in which control groups can be made.
class Machine {
 public:
  Machine() {
    std::string path = (std::filesystem::temp_directory_path() / "tutti-memory-XXXXXX").string();
    root_ = mkdtemp(path.data());
    write("/proc/meminfo", "MemTotal:        8388608 kB\nMemFree:  1 kB\nMemAvailable:    1048576 kB\n");
  }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;
  ~Machine() { std::filesystem::remove_all(root_); }

  void write(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = root_ + name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  // A group of version 2; those without a limit say "max".
  void make_group(const std::string& path, const std::string& limit, std::uint64_t used,
                  std::uint64_t cached = 0) const {
    const std::string group = "/sys/fs/cgroup" + path;
    write(group + "/memory.max", limit + "\n");
    write(group + "/memory.current", std::to_string(used) + "\n");
    write(group + "/memory.stat", "anon 1\nfile 99\ninactive_anon 7\ninactive_file " +
                                      std::to_string(cached / 2) + "\nactive_file " +
                                      std::to_string(cached - cached / 2) + "\n");
  }
  std::uint64_t free_mib() const {
    const auto bytes = free_memory_bytes(root_);
    EXPECT_TRUE(bytes) << bytes.error().text();
    return bytes ? *bytes / mib : 0;
  }

 private:
  std::string root_;
};

std::string of_mib(std::uint64_t count) { return std::to_string(count * mib); }

TEST(FreeMemory, IsTheMachinesWithoutGroups) {
  const Machine machine;
  EXPECT_EQ(machine.free_mib(), 1024);
  EXPECT_TRUE(free_memory_bytes()) << "of this machine";
}

TEST(FreeMemory, IsWhatTheGroupOfAContainerLeaves) {
  const Machine machine;
  machine.write("/proc/self/cgroup", "0::/\n");
  machine.make_group("", of_mib(600), 100 * mib);
  EXPECT_EQ(machine.free_mib(), 500);
}

TEST(FreeMemory, PagesOfFilesAreNotUsed) {
  const Machine machine;
  machine.write("/proc/self/cgroup", "0::/\n");
  machine.make_group("", of_mib(600), 590 * mib, 490 * mib);
  EXPECT_EQ(machine.free_mib(), 500);
  machine.make_group("", of_mib(600), 10 * mib, 20 * mib);
  EXPECT_EQ(machine.free_mib(), 600) << "both are read one after the other, and may disagree";
  machine.make_group("", of_mib(10), 20 * mib);
  EXPECT_EQ(machine.free_mib(), 0) << "a limit that was lowered";
}

TEST(FreeMemory, AnyGroupAboveMayHaveTheLimit) {
  const Machine machine;
  machine.write("/proc/self/cgroup", "0::/system.slice/engine.service\n");
  machine.make_group("/system.slice/engine.service", "max", 50 * mib);
  machine.make_group("/system.slice", of_mib(400), 300 * mib, 100 * mib);
  EXPECT_EQ(machine.free_mib(), 200);
  machine.make_group("/system.slice/engine.service", of_mib(100), 50 * mib);
  EXPECT_EQ(machine.free_mib(), 50);
  machine.make_group("/system.slice/other.service", of_mib(1), 0);
  EXPECT_EQ(machine.free_mib(), 50) << "another's limit is none";
}

TEST(FreeMemory, GroupsOfTheFirstVersion) {
  const Machine machine;
  machine.write("/proc/self/cgroup", "9:cpu,cpuacct:/x\n4:memory:/tutti/rank\n0::/\n");
  const std::string group = "/sys/fs/cgroup/memory/tutti/rank";
  machine.write(group + "/memory.limit_in_bytes", of_mib(300) + "\n");
  machine.write(group + "/memory.usage_in_bytes", of_mib(200) + "\n");
  machine.write(group + "/memory.stat",
                "inactive_file 1\ntotal_inactive_file " + of_mib(100) + "\ntotal_active_file 0\n");
  machine.write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  machine.write("/sys/fs/cgroup/memory/memory.usage_in_bytes", of_mib(999) + "\n");
  EXPECT_EQ(machine.free_mib(), 200);
}

TEST(FreeMemory, AGroupOutOfSightIsPassedOver) {
  const Machine machine;
  machine.write("/proc/self/cgroup", "0::/../../elsewhere\n");
  machine.make_group("", of_mib(700), 0);
  EXPECT_EQ(machine.free_mib(), 700);
  machine.write("/proc/self/cgroup", "0::/docker/0123\n");  // without a namespace, and its own is mounted
  EXPECT_EQ(machine.free_mib(), 700);
}

}  // namespace
}  // namespace tutti::serve::cpu
