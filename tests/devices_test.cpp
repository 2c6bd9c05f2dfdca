// Devices of a node as ranks see them, with a driver's library of the test's own in place of the real one.
#include <signal.h>

#include <algorithm>
#include <filesystem>

#include <gtest/gtest.h>

#include "support/cluster.hpp"

namespace tutti {
namespace {

using support::eventually;
using support::lines_of;
using support::PartsCluster;
using support::write_text;

// Three devices. The one in the middle does not answer as long as a file is there.
constexpr const char* driver_library = R"(
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } Pci;
static int index_of(void* device) { return (int)((char*)device - (char*)0) - 1; }
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
const char* nvmlErrorString(int error) { (void)error; return "GPU is lost"; }
int nvmlDeviceGetCount_v2(unsigned* count) { *count = 3; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = (char*)0 + index + 1;
  return index == 1 && access(getenv("SILENT_DEVICE_FILE"), F_OK) == 0 ? 15 : 0;
}
int nvmlDeviceGetName(void* device, char* name, unsigned length) {
  (void)device; (void)length;
  strcpy(name, "NVIDIA H200");
  return 0;
}
int nvmlDeviceGetMemoryInfo(void* device, Memory* memory) {
  (void)device;
  memory->total = 141ULL << 30;
  return 0;
}
int nvmlDeviceGetUUID(void* device, char* uuid, unsigned length) {
  (void)length;
  strcpy(uuid, "GPU-0");
  uuid[4] = (char)('0' + index_of(device));
  return 0;
}
int nvmlDeviceGetPciInfo_v3(void* device, Pci* pci) {
  (void)device;
  strcpy(pci->bus_id, "0000FFFF:FF:1F.7");
  return 0;
}
)";

// What the ranks of a gang see, sorted.
std::vector<std::string> devices_seen(const PartsCluster& cluster, int gpus) {
  const auto finished = cluster.run({"--no-prefix", "--gpus", std::to_string(gpus)},
                                    "echo $CUDA_VISIBLE_DEVICES $CUDA_DEVICE_ORDER");
  auto lines = lines_of(finished.out);
  std::sort(lines.begin(), lines.end());
  return lines;
}

TEST(Devices, ASilentOneShiftsNoOtherAndIsTakenBackWhenItAnswers) {
  PartsCluster cluster;
  write_text(cluster.file("driver.c"), driver_library);
  const std::string library = cluster.file("libnvidia-ml.so.1");
  if (support::run({"cc", "-shared", "-fPIC", "-o", library, cluster.file("driver.c")}).exit_code != 0)
    GTEST_SKIP() << "there is no C compiler";
  const std::string silent = cluster.file("silent");
  cluster.env()["LD_LIBRARY_PATH"] = cluster.folder();
  cluster.env()["SILENT_DEVICE_FILE"] = silent;
  const auto agent =
      cluster.start({"agent", "--isolation", "none", "--controller", cluster.address(), "--join-token-file",
                     cluster.data() + "/join.token", "--name", "n1", "--data", cluster.home() + "/nodes/n1"},
                    "agent");
  ASSERT_TRUE(cluster.node_becomes("n1", "ready"));
  EXPECT_EQ(devices_seen(cluster, 3),
            (std::vector<std::string>{"GPU-0 PCI_BUS_ID", "GPU-1 PCI_BUS_ID", "GPU-2 PCI_BUS_ID"}));

  write_text(silent, "");
  EXPECT_EQ(cluster.run({"--gpus", "1"}, "exit 3").exit_code, 3) << "and the agent looks what it has";
  const auto is_silent = [&] {
    const auto node = cluster.node("n1");
    return node["devices"].size() == 3U && node["devices"][1].value("silent", false);
  };
  ASSERT_TRUE(eventually(is_silent));
  EXPECT_EQ(devices_seen(cluster, 2), (std::vector<std::string>{"GPU-0 PCI_BUS_ID", "GPU-2 PCI_BUS_ID"}));

  std::filesystem::remove(silent);
  EXPECT_EQ(cluster.run({"--gpus", "1"}, "exit 3").exit_code, 3);
  ASSERT_TRUE(eventually([&] { return !is_silent(); }));
  EXPECT_EQ(devices_seen(cluster, 3).size(), 3U);
  agent->signal(SIGTERM);
  EXPECT_EQ(agent->wait(), 0);
}

}  // namespace
}  // namespace tutti
