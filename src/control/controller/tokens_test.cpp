#include "control/controller/tokens.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "control/controller/controller.hpp"

namespace tutti::controller {
namespace {

struct TokensTest : testing::Test {
  std::string folder = testing::TempDir() + "tutti_tokens_" + std::to_string(getpid());
  std::string join = folder + "/join.token";
  std::string admin = folder + "/admin.token";

  void SetUp() override { ASSERT_TRUE(init_folder(folder).ok()); }
  void TearDown() override { std::filesystem::remove_all(folder); }
  void write(const std::string& file, const std::string& text) const { std::ofstream(file) << text; }
};

TEST_F(TokensTest, AreMadeOnceAndForTheirOwnerAlone) {
  const auto first = read_token(join);
  ASSERT_TRUE(first.ok()) << first.error().text();
  EXPECT_EQ(first->size(), 64U);
  ASSERT_TRUE(init_folder(folder).ok());
  EXPECT_EQ(*read_token(join), *first);
  EXPECT_NE(*read_token(admin), *first);
  struct stat status {};
  ASSERT_EQ(::stat(join.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600U);
}

TEST_F(TokensTest, AnEmptyFileIsMadeAnew) {
  for (const std::string& file : {join, admin}) {
    write(file, file == join ? "" : std::string(64, '\0'));
    EXPECT_FALSE(read_token(file).ok());
    testing::internal::CaptureStderr();
    ASSERT_TRUE(init_folder(folder).ok());
    EXPECT_NE(testing::internal::GetCapturedStderr().find(file + " is empty"), std::string::npos);
    EXPECT_TRUE(read_token(file).ok());
  }
}

TEST_F(TokensTest, ARemovedOneOfAControllerThatWasThereIsMadeAnewAndSaidSo) {
  write(folder + "/store.db", "");
  std::filesystem::remove(join);
  testing::internal::CaptureStderr();
  ASSERT_TRUE(init_folder(folder).ok());
  EXPECT_NE(testing::internal::GetCapturedStderr().find(join + " is gone"), std::string::npos);
  EXPECT_TRUE(read_token(join).ok());
}

TEST_F(TokensTest, WhatCannotTravelInALineIsNoToken) {
  for (const char letter : {'\0', '\x01', '\x7f', '\xff', ' '}) {
    std::string text(64, 'a');
    text[32] = letter;
    write(join, text + "\n");
    const auto read = read_token(join);
    ASSERT_FALSE(read.ok()) << static_cast<int>(letter);
    EXPECT_NE(read.error().text().find("it holds no token"), std::string::npos);
  }
}

TEST_F(TokensTest, WhatSomebodyHasPutThereIsNotReplaced) {
  write(join, "short\n");
  const auto refused = init_folder(folder);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().text(), "token file " + join + " : it holds no token");
  EXPECT_NE(refused.error().remedy().find("remove the file"), std::string::npos);
  std::ifstream kept(join);
  std::string line;
  std::getline(kept, line);
  EXPECT_EQ(line, "short");
}

}  // namespace
}  // namespace tutti::controller
