// A disk that does not answer, as a network file system does whose server is away: whoever looks at it waits
// until it is gone. A FUSE mount that nobody serves. Needs root and /dev/fuse.
#pragma once

#include <string>
#include <thread>

#include "base/files/descriptor.hpp"

namespace tutti::support {

class StalledDisk {
 public:
  // Over a folder, which is made if need be.
  explicit StalledDisk(std::string path);
  StalledDisk(const StalledDisk&) = delete;
  StalledDisk& operator=(const StalledDisk&) = delete;
  ~StalledDisk();

  bool mounted() const { return mounted_; }
  // From now on whatever is asked of it, at once.
  void fail();

 private:
  std::string path_;
  int device_ = -1;
  bool mounted_ = false;
};

// One file of a disk that is worse: it takes what is asked of it and does not answer, so that not even a kill
// ends whoever waits for it. Over a file, which has to be there.
class HungFile {
 public:
  enum class Answers { nothing, opens };  // opens: it is hung for whoever writes to it

  HungFile(std::string path, Answers answers);
  HungFile(const HungFile&) = delete;
  HungFile& operator=(const HungFile&) = delete;
  ~HungFile();

  bool mounted() const { return mounted_; }

 private:
  void serve() const;
  void answer(const std::string& request) const;

  std::string path_;
  Answers answers_;
  files::FileDescriptor device_;
  files::FileDescriptor over_;  // an eventfd
  bool mounted_ = false;
  std::thread server_;
};

}  // namespace tutti::support
