#include "support/small_disk.hpp"

#include <sys/mount.h>

#include <filesystem>

#include "support/process.hpp"

namespace tutti::support {

SmallDisk::SmallDisk(std::string path, int mib)
    : path_(std::move(path)), bytes_(static_cast<std::size_t>(mib) << 20) {
  std::filesystem::create_directories(path_);
  const std::string size = "size=" + std::to_string(mib) + "m";
  mounted_ = ::mount("tutti-test", path_.c_str(), "tmpfs", 0, size.c_str()) == 0;
}

SmallDisk::~SmallDisk() {
  if (mounted_) ::umount2(path_.c_str(), MNT_DETACH);
}

// More than it can hold.
void SmallDisk::fill() const { write_text(path_ + "/filler", std::string(2 * bytes_, 'x')); }
void SmallDisk::empty() const { std::filesystem::remove(path_ + "/filler"); }

}  // namespace tutti::support
