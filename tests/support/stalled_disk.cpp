#include "support/stalled_disk.hpp"

#include <fcntl.h>
#include <sys/mount.h>
#include <unistd.h>

#include <filesystem>

namespace tutti::support {

StalledDisk::StalledDisk(std::string path) : path_(std::move(path)) {
  std::filesystem::create_directories(path_);
  device_ = ::open("/dev/fuse", O_RDWR | O_CLOEXEC);
  if (device_ < 0) return;
  const std::string options = "fd=" + std::to_string(device_) + ",rootmode=40000,user_id=0,group_id=0";
  mounted_ = ::mount("tutti-test", path_.c_str(), "fuse", 0, options.c_str()) == 0;
}

// Without its server the disk fails at once, and who waits goes on.
StalledDisk::~StalledDisk() {
  if (device_ >= 0) ::close(device_);
  if (mounted_) ::umount2(path_.c_str(), MNT_DETACH);
}

}  // namespace tutti::support
