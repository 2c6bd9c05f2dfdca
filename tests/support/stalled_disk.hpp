// A disk that does not answer, as a network file system does whose server is away: whoever looks at it waits
// until it is gone. A FUSE mount that nobody serves. Needs root and /dev/fuse.
#pragma once

#include <string>

namespace tutti::support {

class StalledDisk {
 public:
  // Over a folder, which is made if need be.
  explicit StalledDisk(std::string path);
  StalledDisk(const StalledDisk&) = delete;
  StalledDisk& operator=(const StalledDisk&) = delete;
  ~StalledDisk();

  bool mounted() const { return mounted_; }

 private:
  std::string path_;
  int device_ = -1;
  bool mounted_ = false;
};

}  // namespace tutti::support
