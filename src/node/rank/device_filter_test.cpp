#include "node/rank/device_filter.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "node/rank/child_test.hpp"
#include "node/rank/folder_test.hpp"

namespace tutti::rank {
namespace {

constexpr const char* cgroups = "/sys/fs/cgroup";

bool opens(const char* path) {
  const int file = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (file >= 0) close(file);
  return file >= 0;
}

// Of the kernel, and harmless; who is root may open it.
constexpr const char* others_device = "/dev/kmsg";

class DeviceFilterTest : public FolderTest {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "needs root";
    if (!opens(others_device)) GTEST_SKIP() << "needs a device that is nobody's";
  }
  std::string name() const { return "tutti-devices-" + std::to_string(getpid()); }

  void make_device(const std::string& name, unsigned int major_number, unsigned int minor_number) const {
    std::filesystem::create_directories(std::filesystem::path(path("dev/" + name)).parent_path());
    ASSERT_EQ(mknod(path("dev/" + name).c_str(), S_IFCHR | 0600, makedev(major_number, minor_number)), 0);
  }
  void tell_of_gpu(const std::string& place, const std::string& uuid, int number) const {
    std::filesystem::create_directories(path("proc/driver/nvidia/gpus/" + place));
    std::ofstream(path("proc/driver/nvidia/gpus/" + place + "/information"))
        << "Model: \t\t NVIDIA H200\nGPU UUID: \t " << uuid << "\nDevice Minor: \t " << number << "\n";
  }
};

bool allows(const std::vector<DeviceNumber>& devices, std::uint32_t major_number,
            std::uint32_t minor_number) {
  return std::find(devices.begin(), devices.end(),
                   DeviceNumber{.major = major_number, .minor = minor_number}) != devices.end();
}

TEST_F(DeviceFilterTest, ByAProgramOfTheKernelOnlyWhatIsAllowedOpens) {
  const Hold hold(name());
  if (!hold.is_unified() || !hold.make()) GTEST_SKIP() << "needs cgroups of version 2";
  {
    DeviceFilter filter(name());
    const auto made = filter.make(hold, devices_of_a_rank({}));
    if (std::filesystem::exists(cgroups + ("/devices/tutti/" + name())))
      GTEST_SKIP() << "the kernel takes no program for devices";
    ASSERT_TRUE(made) << made.error().text();
    EXPECT_TRUE(opens(others_device)) << "of the others nobody";
    EXPECT_TRUE(holds_in_a_child([&] {
      return hold.enter() && filter.enter(true) && opens("/dev/null") && opens("/dev/urandom") &&
             !opens(others_device) && errno == EPERM &&
             mknod(path("mine").c_str(), S_IFCHR | 0600, makedev(1, 11)) != 0;
    }));
    EXPECT_FALSE(filter.enter(false)) << "it is not under it";
  }
  EXPECT_TRUE(hold.remove());
}

TEST_F(DeviceFilterTest, ByTheControllerOfVersionOneOnlyWhatIsAllowedOpens) {
  if (access((std::string(cgroups) + "/devices/cgroup.procs").c_str(), W_OK) != 0)
    GTEST_SKIP() << "needs the controller `devices`";
  const std::string folder = cgroups + ("/devices/tutti/" + name());
  {
    DeviceFilter filter(name());
    const auto made = filter.make(Hold(""), devices_of_a_rank({}));
    ASSERT_TRUE(made) << made.error().text();
    EXPECT_TRUE(holds_in_a_child([&] {
      return filter.enter(false) && opens("/dev/null") && opens("/dev/urandom") && !opens(others_device) &&
             errno == EPERM && mknod(path("mine").c_str(), S_IFCHR | 0600, makedev(1, 11)) != 0;
    }));
    EXPECT_TRUE(std::filesystem::exists(folder));
  }
  EXPECT_FALSE(std::filesystem::exists(folder));
}

TEST_F(DeviceFilterTest, ThatItCanBeHadIsTriedAndLeavesNothing) {
  EXPECT_TRUE(can_filter_devices(name()));
  EXPECT_FALSE(std::filesystem::exists(cgroups + ("/devices/tutti/" + name())));
  EXPECT_FALSE(Hold(name()).exists());
  EXPECT_FALSE(can_filter_devices(name(), path("no-cgroups-here")));
}

TEST_F(DeviceFilterTest, ARankGetsTheFilesOfItsOwnGpusByTheirNames) {
  for (unsigned int gpu = 0; gpu < 4; ++gpu) make_device("nvidia" + std::to_string(gpu), 195, gpu);
  make_device("nvidiactl", 195, 255);
  make_device("nvidia-uvm", 511, 0);
  make_device("null", 1, 3);
  make_device("kmsg", 1, 11);
  make_device("infiniband/uverbs0", 231, 192);
  // Not in the order of their files.
  tell_of_gpu("0000:01:00.0", "GPU-aaa", 2);
  tell_of_gpu("0000:02:00.0", "GPU-bbb", 0);
  tell_of_gpu("0000:03:00.0", "GPU-ccc", 1);
  const auto devices = devices_of_a_rank({"GPU-aaa", "GPU-ccc"}, path("dev"), path("proc"));
  EXPECT_TRUE(allows(devices, 195, 2));
  EXPECT_TRUE(allows(devices, 195, 1));
  EXPECT_FALSE(allows(devices, 195, 0));
  EXPECT_FALSE(allows(devices, 195, 3));
  EXPECT_TRUE(allows(devices, 195, 255));
  EXPECT_TRUE(allows(devices, 511, 0));
  EXPECT_TRUE(allows(devices, 1, 3));
  EXPECT_TRUE(allows(devices, 231, 192));
  EXPECT_FALSE(allows(devices, 1, 11));
  const auto none = devices_of_a_rank({}, path("dev"), path("proc"));
  EXPECT_FALSE(allows(none, 195, 255)) << "who has no GPU needs no driver";
  EXPECT_TRUE(allows(none, 1, 3));
}

TEST_F(DeviceFilterTest, WhereTheDriverDoesNotTellWhichFileIsWhoseAllOfItsFilesOpen) {
  for (unsigned int gpu = 0; gpu < 2; ++gpu) make_device("nvidia" + std::to_string(gpu), 195, gpu);
  const auto devices = devices_of_a_rank({"GPU-aaa"}, path("dev"), path("proc"));
  EXPECT_TRUE(allows(devices, 195, 0));
  EXPECT_TRUE(allows(devices, 195, 1));
}

}  // namespace
}  // namespace tutti::rank
