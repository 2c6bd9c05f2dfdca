// A folder of its own for each test, removed with all it holds, and short ways to fill it.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace tutti::sync {

class FolderTest : public testing::Test {
 protected:
  FolderTest() {
    std::string path = (std::filesystem::temp_directory_path() / "tutti-sync-XXXXXX").string();
    folder_ = mkdtemp(path.data());
  }
  ~FolderTest() override { std::filesystem::remove_all(folder_); }

  const std::string& folder() const { return folder_; }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  // Makes the folders above it too.
  void write(const std::string& name, const std::string& content) const {
    std::filesystem::create_directories(std::filesystem::path(path(name)).parent_path());
    std::ofstream(path(name), std::ios::binary) << content;
  }

  std::string read(const std::string& name) const {
    std::stringstream content;
    content << std::ifstream(path(name), std::ios::binary).rdbuf();
    return content.str();
  }

  std::vector<std::string> names_in(const std::string& name) const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path(name))) {
      names.push_back(entry.path().filename().string());
    }
    return names;
  }

 private:
  std::string folder_;
};

}  // namespace tutti::sync
