#include "node/devices/host/host.hpp"

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

namespace tutti::devices {
namespace {

const std::string no_library = "libtutti-does-not-exist.so.1";

TEST(Host, IsFoundWithAndWithoutTheLibrary) {
  const Host plain = find_host(no_library);
  EXPECT_EQ(plain.source, "system");
  const Host host = find_host();
  if (host.source != "hwloc") GTEST_SKIP() << "hwloc is not installed";
  EXPECT_EQ(host.cpus, plain.cpus);
  EXPECT_GE(host.numa_nodes, 1);
  EXPECT_GT(host.memory, mib(64));
  EXPECT_LE(host.memory.count() / 2, plain.memory.count());
}

// Every thread of the process: the thread sanitizer has one of its own, and hwloc asks them all.
bool bind_process_to_one_cpu() {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<std::size_t>(sched_getcpu()), &one);
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
    const pid_t id = std::stoi(thread.path().filename().string());
    if (sched_setaffinity(id, sizeof one, &one) != 0) return false;
  }
  return true;
}

TEST(Host, CountsOnlyTheCpusThatTheProcessMayUse) {
  const pid_t child = fork();
  if (child == 0) {
    if (!bind_process_to_one_cpu()) _exit(1);
    _exit(find_host().cpus == 1 && find_host(no_library).cpus == 1 ? 0 : 2);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(NumaOfPci, ReadsBothFormsOfABusId) {
  std::string root = (std::filesystem::temp_directory_path() / "tutti-pci-XXXXXX").string();
  ASSERT_NE(mkdtemp(root.data()), nullptr);
  std::filesystem::create_directories(root + "/0000:3b:00.0");
  std::ofstream(root + "/0000:3b:00.0/numa_node") << "1\n";
  EXPECT_EQ(numa_of_pci("0000:3b:00.0", root), 1);
  EXPECT_EQ(numa_of_pci("00000000:3B:00.0", root), 1);
  EXPECT_EQ(numa_of_pci("0000:3c:00.0", root), -1);
  EXPECT_EQ(numa_of_pci("", root), -1);
  EXPECT_EQ(numa_of_pci("../0000:3b:00.0", root), -1);
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace tutti::devices
