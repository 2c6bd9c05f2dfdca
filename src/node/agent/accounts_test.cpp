#include "node/agent/accounts.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

namespace tutti::agent {
namespace {

class AccountsTest : public testing::Test {
 protected:
  AccountsTest() {
    std::string path = testing::TempDir() + "tutti-accounts-XXXXXX";
    folder_ = mkdtemp(path.data());
  }
  ~AccountsTest() override { std::filesystem::remove_all(folder_); }
  std::string file() const { return folder_ + "/users"; }
  void write(const std::string& content) const {
    std::ofstream(file()) << content;
    ::chmod(file().c_str(), 0644);
  }

  std::string folder_;
};

TEST_F(AccountsTest, WithoutAFileUsersHaveTheirOwnNames) {
  Accounts accounts("");
  EXPECT_TRUE(accounts.read_again());
  EXPECT_EQ(accounts.name_of("ada"), "ada");
}

TEST_F(AccountsTest, AFileIsReadAgainWhenItIsAnotherOne) {
  write("# who is who\n\n  ada@example.org \t a.lovelace\n");
  Accounts accounts(file());
  ASSERT_TRUE(accounts.read_again());
  EXPECT_EQ(accounts.name_of("ada@example.org"), "a.lovelace");
  EXPECT_EQ(accounts.name_of("ben"), "ben");
  write("ben b.babbage\n");
  ASSERT_TRUE(accounts.read_again());
  EXPECT_EQ(accounts.name_of("ben"), "b.babbage");
  EXPECT_EQ(accounts.name_of("ada@example.org"), "ada@example.org");
}

TEST_F(AccountsTest, WhatIsWrongIsToldByItsLineAndWhatWasReadBeforeHolds) {
  write("ada a.lovelace\n");
  Accounts accounts(file());
  ASSERT_TRUE(accounts.read_again());
  for (const std::string wrong : {"ada a.lovelace\nben\n", "ada x\nben a b\n", "ada x\nben ../x\n",
                                  "ada x\nben 0\n", "ada x\nada y\n"}) {
    write(wrong);
    const auto read = accounts.read_again();
    ASSERT_FALSE(read) << wrong;
    EXPECT_NE(read.error().text().find("line 2"), std::string::npos) << read.error().text();
    EXPECT_EQ(accounts.name_of("ada"), "a.lovelace");
  }
  std::filesystem::remove(file());
  EXPECT_FALSE(accounts.read_again());
  EXPECT_EQ(accounts.name_of("ada"), "a.lovelace");
}

TEST_F(AccountsTest, AFileHasABound) {
  EXPECT_TRUE(parse_users(std::string(users_lines_max - 1, '\n')));
  EXPECT_FALSE(parse_users(std::string(users_lines_max + 1, '\n')));
  write(std::string(users_file_bytes_max + 1, '#'));
  Accounts accounts(file());
  EXPECT_FALSE(accounts.read_again());
}

TEST_F(AccountsTest, AFileThatOthersMayWriteToIsRefused) {
  write("ada a.lovelace\n");
  ::chmod(file().c_str(), 0666);
  Accounts accounts(file());
  const auto read = accounts.read_again();
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code(), ErrorCode::invalid);
  EXPECT_EQ(accounts.name_of("ada"), "ada");
}

// A directory that takes a second each time would have hundreds of jobs wait for minutes.
TEST_F(AccountsTest, AllWhoHaveAskedWhenTheDirectoryAnswersHaveItsAnswer) {
  int asked = 0;
  Accounts accounts("", [&](const std::string& name) -> Result<std::optional<rank::Account>> {
    ++asked;
    if (name == "nobody-here") return std::optional<rank::Account>();
    return std::optional(rank::Account{.name = name, .uid = 1000});
  });
  const auto before = Accounts::Clock::now();
  for (int job = 0; job < 300; ++job) {
    EXPECT_EQ((*accounts.account_of("ada", before))->name, "ada");
    EXPECT_FALSE(*accounts.account_of("nobody-here", before));
  }
  EXPECT_EQ(asked, 2);
  EXPECT_FALSE(*accounts.account_of("nobody-here")) << "and who asks later has what is true then";
  EXPECT_EQ(asked, 3);
}

TEST_F(AccountsTest, WhoIsRefusedIsNamedWithWhomItIsFor) {
  write("ada root\n");
  Accounts accounts(file());
  ASSERT_TRUE(accounts.read_again());
  const auto root = accounts.account_of("ada");
  ASSERT_FALSE(root);
  EXPECT_EQ(root.error().code(), ErrorCode::invalid);
  EXPECT_NE(root.error().text().find("the user ada"), std::string::npos) << root.error().text();
  EXPECT_NE(root.error().text().find("account root"), std::string::npos) << root.error().text();
  EXPECT_FALSE(accounts.account_of(""));
}

}  // namespace
}  // namespace tutti::agent
