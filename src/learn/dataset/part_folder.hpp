// A folder that is filled beside its place and then moved there. One thread at a time.
#pragma once

#include <string>

#include "base/files/descriptor.hpp"
#include "base/result.hpp"

namespace tutti::dataset {

class PartFolder {
 public:
  // `place` must be free, or hold a dataset and nothing else if that may be replaced. Parts of processes that
  // are gone are removed first.
  static Result<PartFolder> create(std::string place, bool replace);
  PartFolder(PartFolder&& other) noexcept;
  PartFolder& operator=(PartFolder&& other) noexcept;
  // Removes the folder with all that is in it, unless it was moved.
  ~PartFolder() { remove(); }

  const std::string& path() const { return path_; }
  Result<> move_to_place();

 private:
  PartFolder(std::string place, std::string path, files::FileDescriptor held, bool replace)
      : place_(std::move(place)), path_(std::move(path)), held_(std::move(held)), replace_(replace) {}
  void remove();

  std::string place_;
  std::string path_;            // empty once there is nothing to remove
  files::FileDescriptor held_;  // locked, as long as this process lives
  bool replace_;
};

}  // namespace tutti::dataset
