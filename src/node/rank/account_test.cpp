#include "node/rank/account.hpp"

#include <grp.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include <gtest/gtest.h>

#include "node/rank/child_test.hpp"

namespace tutti::rank {
namespace {

// A number that no account of this machine needs to have.
Account somebody() {
  return {.name = "somebody",
          .uid = 54'321,
          .gid = 54'322,
          .groups = {54'322, 54'323},
          .home = "/",
          .shell = "/bin/sh"};
}

TEST(Account, RootAndServicesAreRefusedByName) {
  const auto root = find_account("root");
  ASSERT_FALSE(root);
  EXPECT_EQ(root.error().code(), ErrorCode::invalid);
  EXPECT_NE(root.error().text().find("account root (uid 0)"), std::string::npos) << root.error().text();
  EXPECT_NE(root.error().text().find("--users"), std::string::npos);
  const auto service = find_account("daemon");
  ASSERT_FALSE(service);
  EXPECT_EQ(service.error().code(), ErrorCode::invalid);
}

TEST(Account, WhoIsNoPersonIsRefused) {
  EXPECT_TRUE(check_person(somebody()));
  constexpr PeopleIds everybody{.min = 1, .max = static_cast<uid_t>(-1)};
  for (const uid_t uid : {uid_t{0}, uid_t{65'534}, static_cast<uid_t>(-1)}) {
    Account account = somebody();
    account.uid = uid;
    EXPECT_FALSE(check_account(account)) << uid;
    EXPECT_FALSE(check_person(account, everybody)) << uid;
  }
  // Directories of companies begin where others end.
  for (const uid_t uid : {uid_t{999}, uid_t{60'001}, uid_t{1'000'000}}) {
    Account account = somebody();
    account.uid = uid;
    EXPECT_FALSE(check_person(account)) << uid;
    EXPECT_TRUE(check_person(account, everybody)) << uid;
  }
  EXPECT_FALSE(check_person(somebody(), {.min = 100'000, .max = 200'000}));
  Account of_root = somebody();
  of_root.gid = 0;
  EXPECT_FALSE(check_account(of_root));
}

TEST(Account, NumbersOfPeopleAreTwo) {
  EXPECT_EQ(*parse_people_ids("1000-60000"), PeopleIds());
  EXPECT_EQ(*parse_people_ids("100000-2000000000"), (PeopleIds{.min = 100'000, .max = 2'000'000'000}));
  for (const char* wrong :
       {"", "-", "1000", "1000-", "-1000", "0-1000", "2-1", "1-2-3", "a-b", "1-99999999999"})
    EXPECT_FALSE(parse_people_ids(wrong)) << wrong;
}

TEST(Account, OneThatIsNotHereIsNoError) {
  const auto nobody_knows = find_account("tutti-nobody-knows-this-one");
  ASSERT_TRUE(nobody_knows) << nobody_knows.error().text();
  EXPECT_FALSE(*nobody_knows);
}

TEST(Account, NamesThatADirectoryCouldTakeForSomethingElseAreRefused) {
  for (const std::string name : {"", "0", "1000", "-x", "a b", "a/b", "../x", "a:b", "*", "a\nb", "$(x)"}) {
    EXPECT_FALSE(is_account_name(name)) << name;
    const auto found = find_account(name);
    ASSERT_FALSE(found) << name;
    EXPECT_EQ(found.error().code(), ErrorCode::invalid) << name;
  }
  EXPECT_FALSE(is_account_name(std::string(account_name_bytes_max + 1, 'a')));
  for (const std::string name : {"ada", "Ada.Lovelace", "ada@example.org", "_x", "a-b_c2"})
    EXPECT_TRUE(is_account_name(name)) << name;
}

TEST(Account, WhoHasBecomeOneCannotGoBack) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  EXPECT_TRUE(holds_in_a_child([] {
    const Account account = somebody();
    if (become(account) != 0) return false;
    gid_t groups[3] = {};
    const bool is_it = getuid() == account.uid && geteuid() == account.uid && getgid() == account.gid &&
                       getgroups(3, groups) == 2 && groups[1] == 54'323;
    return is_it && setuid(0) != 0 && seteuid(0) != 0 && setgid(0) != 0 && setgroups(0, nullptr) != 0 &&
           prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 && prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) == 0 &&
           access("/etc/shadow", R_OK) != 0;
  }));
}

TEST(Account, NobodyBecomesRootByASpecification) {
  EXPECT_TRUE(holds_in_a_child([] {
    Account root = somebody();
    root.uid = 0;
    return become(root) == EPERM;
  }));
}

}  // namespace
}  // namespace tutti::rank
