#include "serve/server/key.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace tutti::serve {
namespace {

class Key : public testing::Test {
 protected:
  Key() {
    std::string path = (std::filesystem::temp_directory_path() / "tutti-key-XXXXXX").string();
    folder_ = mkdtemp(path.data());
  }
  ~Key() override { std::filesystem::remove_all(folder_); }

  std::string file(const std::string& text, mode_t mode = 0600) const {
    std::ofstream(folder_ + "/key") << text;
    EXPECT_EQ(chmod((folder_ + "/key").c_str(), mode), 0);
    return folder_ + "/key";
  }

 private:
  std::string folder_;
};

TEST_F(Key, IsTheFirstLineOfAFileOfOnesOwn) {
  const auto key = read_key(file("0123456789abcdef\nmore"));
  ASSERT_TRUE(key) << key.error().text();
  EXPECT_EQ(*key, "0123456789abcdef");
}

TEST_F(Key, IsRefusedWhereOthersCanReadIt) {
  EXPECT_FALSE(read_key(file("0123456789abcdef\n", 0640)));
  EXPECT_FALSE(read_key(file("0123456789abcdef\n", 0604)));
}

// Whoever gave a key decided how long it is.
TEST_F(Key, OfAnEngineHereIsRefusedIfItIsShort) {
  EXPECT_EQ(*read_key(file("sk-short\n")), "sk-short");
  EXPECT_FALSE(read_own_key(file("sk-short\n")));
  EXPECT_EQ(*read_own_key(file("0123456789abcdef\n")), "0123456789abcdef");
  EXPECT_FALSE(read_own_key("/nowhere"));
}

TEST_F(Key, IsRefusedIfItIsNone) {
  EXPECT_FALSE(read_key(file("")));
  EXPECT_FALSE(read_key(file("\nsecond line\n")));
  EXPECT_FALSE(read_key(file("0123456789 abcdef\n")));
  EXPECT_FALSE(read_key("/nowhere"));
  EXPECT_FALSE(read_key("/dev/zero"));
}

TEST_F(Key, IsComparedWhole) {
  EXPECT_TRUE(is_same_key("0123456789abcdef", "0123456789abcdef"));
  EXPECT_FALSE(is_same_key("0123456789abcdef", "0123456789abcde"));
  EXPECT_FALSE(is_same_key("0123456789abcdef", "0123456789abcdeg"));
  EXPECT_FALSE(is_same_key("0123456789abcdef", "0123456789abcdef0123456789abcdef"));
  EXPECT_FALSE(is_same_key("0123456789abcdef", ""));
}

}  // namespace
}  // namespace tutti::serve
