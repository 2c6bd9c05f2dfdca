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

// More than it can hold, beside what has filled it before.
void SmallDisk::fill() const {
  write_text(path_ + "/filler" + std::to_string(fillers_), std::string(2 * bytes_, 'x'));
  ++fillers_;
}
void SmallDisk::empty() const {
  for (; fillers_ > 0; --fillers_) std::filesystem::remove(path_ + "/filler" + std::to_string(fillers_ - 1));
}

}  // namespace tutti::support
