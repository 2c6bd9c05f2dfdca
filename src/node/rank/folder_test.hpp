// A folder of its own for each test, removed with all it holds.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include <gtest/gtest.h>

namespace tutti::rank {

class FolderTest : public testing::Test {
 protected:
  FolderTest() {
    std::string path = (std::filesystem::temp_directory_path() / "tutti-rank-XXXXXX").string();
    folder_ = mkdtemp(path.data());
  }
  ~FolderTest() override { std::filesystem::remove_all(folder_); }

  const std::string& folder() const { return folder_; }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }

 private:
  std::string folder_;
};

}  // namespace tutti::rank
