// A disk of a few MiB, in memory: for what happens when it is full. Needs root. Unmounted with its object.
#pragma once

#include <string>

namespace tutti::support {

class SmallDisk {
 public:
  explicit SmallDisk(std::string path, int mib = 4);
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  ~SmallDisk();

  bool mounted() const { return mounted_; }
  // What has become free since, too: as often as it is called.
  void fill() const;
  void empty() const;

 private:
  std::string path_;
  std::size_t bytes_ = 0;
  mutable int fillers_ = 0;
  bool mounted_ = false;
};

}  // namespace tutti::support
