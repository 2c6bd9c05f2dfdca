#include "node/devices/nvml/nvml.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

namespace tutti::devices {
namespace {

// A driver's library with three devices, of which the one in the middle fell off the bus.
constexpr const char* fake_library = R"(
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } Pci;
static void copy(char* to, const char* from) { while ((*to++ = *from++)) {} }
static int index_of(void* device) { return (int)((char*)device - (char*)0) - 1; }
int nvmlInit_v2(void) { return INIT_RESULT; }
int nvmlShutdown(void) { return 0; }
const char* nvmlErrorString(int error) {
  return error == 15 ? "GPU is lost" : "Driver/library version mismatch";
}
int nvmlDeviceGetCount_v2(unsigned* count) { *count = 3; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = (char*)0 + index + 1;
  return index == 1 ? 15 : 0;
}
int nvmlDeviceGetName(void* device, char* name, unsigned length) {
  (void)length;
  copy(name, index_of(device) == 0 ? "NVIDIA H200" : "NVIDIA A100-SXM4-80GB");
  return 0;
}
int nvmlDeviceGetMemoryInfo(void* device, Memory* memory) {
  memory->total = (index_of(device) == 0 ? 141ULL : 80ULL) << 30;
  return 0;
}
int nvmlDeviceGetUUID(void* device, char* uuid, unsigned length) {
  (void)length;
  copy(uuid, index_of(device) == 0 ? "GPU-zero" : "GPU-two");
  return 0;
}
int nvmlDeviceGetPciInfo_v3(void* device, Pci* pci) {
  (void)device;
  copy(pci->bus_id, "0000FFFF:FF:1F.7");
  return 0;
}
)";

class NvmlTest : public testing::Test {
 protected:
  NvmlTest() {
    std::string path = (std::filesystem::temp_directory_path() / "tutti-nvml-XXXXXX").string();
    folder_ = mkdtemp(path.data());
  }
  ~NvmlTest() override { std::filesystem::remove_all(folder_); }

  // The path of a library built for this test, "" if there is no compiler.
  std::string library(const std::string& source, const std::string& options) const {
    std::ofstream(folder_ + "/fake.c") << source;
    const std::string path = folder_ + "/libfake.so";
    const std::string command = "cc -shared -fPIC " + options + " -o " + path + " " + folder_ + "/fake.c";
    return std::system(command.c_str()) == 0 ? path : "";
  }

 private:
  std::string folder_;
};

TEST_F(NvmlTest, NoLibraryMeansNoDevices) {
  const Found found = find_nvml("libtutti-does-not-exist.so.1");
  EXPECT_EQ(found.source, "none");
  EXPECT_TRUE(found.inventory.devices.empty());
  EXPECT_TRUE(found.warnings.empty());
}

TEST_F(NvmlTest, DevicesAreFoundAndALostOneIsAWarning) {
  const std::string path = library(fake_library, "-DINIT_RESULT=0");
  if (path.empty()) GTEST_SKIP() << "there is no C compiler";
  const Found found = find_nvml(path);
  EXPECT_EQ(found.source, "nvml");
  ASSERT_EQ(found.inventory.devices.size(), 3U);
  EXPECT_EQ(found.inventory.devices[0].model, "H200");
  EXPECT_EQ(found.inventory.devices[0].memory, gib(141));
  EXPECT_EQ(found.inventory.devices[0].uuid, "GPU-zero");
  EXPECT_EQ(found.inventory.devices[0].numa, -1);
  EXPECT_TRUE(found.inventory.devices[1].silent) << "it keeps its index";
  EXPECT_EQ(found.inventory.devices[2].model, "A100-SXM4-80GB");
  EXPECT_EQ(found.inventory.devices[2].uuid, "GPU-two");
  EXPECT_FALSE(found.inventory.devices[2].silent);
  ASSERT_EQ(found.warnings.size(), 1U);
  EXPECT_EQ(found.warnings[0], "device 1 does not answer: GPU is lost");
}

TEST_F(NvmlTest, ADriverThatDoesNotAnswerIsAWarning) {
  const std::string path = library(fake_library, "-DINIT_RESULT=18");
  if (path.empty()) GTEST_SKIP() << "there is no C compiler";
  const Found found = find_nvml(path);
  EXPECT_TRUE(found.inventory.devices.empty());
  ASSERT_EQ(found.warnings.size(), 1U);
  EXPECT_EQ(found.warnings[0], "the NVIDIA driver does not answer: Driver/library version mismatch");
}

TEST_F(NvmlTest, ALibraryWithoutTheFunctionsIsAWarning) {
  const std::string path = library("int nvmlInit(void) { return 0; }", "");
  if (path.empty()) GTEST_SKIP() << "there is no C compiler";
  const Found found = find_nvml(path);
  EXPECT_TRUE(found.inventory.devices.empty());
  EXPECT_EQ(found.warnings.size(), 1U);
}

TEST(ShortModel, LeavesOutTheMaker) {
  EXPECT_EQ(short_model("NVIDIA H200"), "H200");
  EXPECT_EQ(short_model("NVIDIA A100-SXM4-80GB"), "A100-SXM4-80GB");
  EXPECT_EQ(short_model("Tesla V100-SXM2-32GB"), "V100-SXM2-32GB");
  EXPECT_EQ(short_model("NVIDIA H100 80GB HBM3"), "H100-80GB-HBM3");
}

}  // namespace
}  // namespace tutti::devices
