// The way of secrets to a rank: through memory, into files in memory that are its own.
#include "node/rank/secrets.hpp"

#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/files/files.hpp"
#include "node/rank/child_test.hpp"
#include "node/rank/folder_test.hpp"
#include "node/rank/private_mounts.hpp"

namespace tutti::rank {
namespace {

namespace fs = std::filesystem;

// As statfs(2) says it of a mount, and of a tmpfs.
constexpr long read_only = 1;
constexpr long kind_of_tmpfs = 0x01021994;

const std::vector<SecretFile> some{{"TOKEN", std::string("a\0value", 7)}, {"k.ey-2_", "x"}};

std::string text_in(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

class Secrets : public FolderTest {
 protected:
  ~Secrets() override { remove_secrets_folder(folder()); }
};

TEST_F(Secrets, WhatIsPackedIsUnpacked) {
  const auto packed = pack_secrets(some);
  ASSERT_TRUE(packed) << packed.error().text();
  EXPECT_EQ(*unpack_secrets(packed->get()), some);
  EXPECT_NE(fcntl(packed->get(), F_GETFD) & FD_CLOEXEC, 0) << "nobody else inherits it";
  const std::vector<SecretFile> most(rank_secrets_max,
                                     {"", std::string(rank_secrets_bytes_max / rank_secrets_max, 'x')});
  std::vector<SecretFile> named = most;
  for (std::size_t at = 0; at < named.size(); ++at) named[at].name = "S" + std::to_string(at);
  EXPECT_EQ(*unpack_secrets(pack_secrets(named)->get()), named);
  named.front().value += "x";
  EXPECT_FALSE(pack_secrets(named));
  for (const char* name : {"", "../a", "a/b", ".a", "-a", "a b"})
    EXPECT_FALSE(pack_secrets({{name, "x"}})) << name;
  EXPECT_FALSE(pack_secrets({{"A", "1"}, {"A", "2"}}));
}

TEST_F(Secrets, WhatIsDamagedIsRefused) {
  EXPECT_FALSE(unpack_secrets(-1));
  const auto packed = pack_secrets(some);
  struct stat status {};
  ASSERT_EQ(fstat(packed->get(), &status), 0);
  for (off_t size = 0; size < status.st_size; ++size) {
    const auto cut = pack_secrets(some);
    ASSERT_EQ(ftruncate(cut->get(), size), 0);
    EXPECT_FALSE(unpack_secrets(cut->get())) << size;
  }
  for (std::uint64_t at = 0; at < static_cast<std::uint64_t>(status.st_size); at += 8) {
    const auto touched = pack_secrets(some);
    ASSERT_TRUE(files::write_at(touched->get(), at, as_bytes("\xff\xff\xff\xff"), "touched"));
    const auto read = unpack_secrets(touched->get());
    EXPECT_TRUE(!read || *read != some) << at;
  }
}

TEST_F(Secrets, WithoutAMountTheyAreInAClosedFolderInMemory) {
  const auto made = make_secrets_folder(folder(), some, nullptr);
  if (!made) GTEST_SKIP() << made.error().text();
  struct stat status {};
  ASSERT_EQ(stat(made->c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0700U);
  for (const SecretFile& secret : some) {
    const std::string path = *made + "/" + secret.name;
    ASSERT_EQ(stat(path.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777, 0400U);
    EXPECT_EQ(text_in(path), secret.value);
  }
  // Whoever comes after the shim finds it by the rank's folder, where no value is.
  for (const auto& entry : fs::directory_iterator(folder()))
    EXPECT_EQ(text_in(entry.path()).find("value"), std::string::npos) << entry.path();
  remove_secrets_folder(folder());
  EXPECT_FALSE(fs::exists(*made));
  remove_secrets_folder(folder());
}

const Account& its_account() {
  static const Account account{
      .name = "somebody", .uid = 23'456, .gid = 23'456, .groups = {23'456}, .home = "/", .shell = "/bin/sh"};
  return account;
}

// This process has mounts of its own from now on.
bool leave_the_mounts_of_others() {
  return unshare(CLONE_NEWNS) == 0 && mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
}
bool mount_tmpfs(const std::string& place, const char* options) {
  return mount("none", place.c_str(), "tmpfs", 0, options) == 0;
}

// What root makes there whoever owns it can move, and lay a link in its place: to /etc, for one.
TEST_F(Secrets, RootMakesNoneInAFolderThatIsInTheHandsOfAnAccount) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  if (!can_have_private_mounts()) GTEST_SKIP() << "needs mount namespaces";
  const std::string own = "/run/user/" + std::to_string(its_account().uid);
  // A tmpfs over what is there, so that nothing is left of it.
  EXPECT_TRUE(holds_in_a_child([&] {
    if (!leave_the_mounts_of_others() || !mount_tmpfs("/run", "mode=0755") || !fs::create_directories(own) ||
        !mount_tmpfs(own, "mode=0700,uid=23456"))
      return false;
    // On a disk, as on a machine that has no tmpfs there.
    if (mount(folder().c_str(), "/dev/shm", nullptr, MS_BIND, nullptr) != 0) return false;
    return !make_secrets_folder(folder(), some, &its_account()) && fs::is_empty(own);
  }));
  for (const char* options : {"mode=0777", "mode=01777,uid=23456"}) {
    EXPECT_TRUE(holds_in_a_child([&] {
      return leave_the_mounts_of_others() && mount_tmpfs("/dev/shm", options) &&
             !make_secrets_folder(folder(), some, &its_account()) && fs::is_empty("/dev/shm");
    })) << options;
  }
}

TEST_F(Secrets, WithoutAMountTheFolderOfAnAccountStaysRoots) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  const auto made = make_secrets_folder(folder(), some, &its_account());
  if (!made) GTEST_SKIP() << made.error().text();
  struct stat status {};
  ASSERT_EQ(stat(made->c_str(), &status), 0);
  EXPECT_EQ(status.st_uid, 0U);
  EXPECT_EQ(status.st_gid, its_account().gid);
  EXPECT_EQ(status.st_mode & 07777, 0710U);
  const auto holds_for = [&](uid_t uid, const auto& holds) {
    return holds_in_a_child(
        [&] { return setgroups(0, nullptr) == 0 && setgid(uid) == 0 && setuid(uid) == 0 && holds(); });
  };
  for (const SecretFile& secret : some) {
    const std::string path = *made + "/" + secret.name;
    EXPECT_TRUE(holds_for(its_account().uid, [&] { return text_in(path) == secret.value; }));
    EXPECT_TRUE(holds_for(its_account().uid + 1, [&] { return access(path.c_str(), F_OK) != 0; }));
  }
  EXPECT_TRUE(holds_for(its_account().uid, [&] {
    return rename(made->c_str(), (*made + "-moved").c_str()) != 0 &&
           unlink((*made + "/TOKEN").c_str()) != 0 && symlink("/etc", (*made + "/link").c_str()) != 0;
  }));
  remove_secrets_folder(folder());
  EXPECT_FALSE(fs::exists(*made));
}

// Somebody moves it away once it is open, and has another one, or a link, of its name.
TEST_F(Secrets, AreWrittenIntoTheFolderThatWasOpenedAndNowhereElse) {
  for (const std::string name : {"mine", "mine/made", "other"}) fs::create_directories(path(name));
  const files::FileDescriptor made(open(path("mine/made").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  fs::rename(path("mine/made"), path("mine/moved"));
  fs::create_directory_symlink(path("other"), path("mine/made"));
  EXPECT_EQ(write_secrets(made, some, nullptr), 0);
  EXPECT_TRUE(fs::is_empty(path("other")));
  EXPECT_EQ(text_in(path("mine/moved/TOKEN")), some[0].value);
  // A name in it that is a link leads nowhere.
  fs::remove(path("mine/moved/TOKEN"));
  fs::create_symlink(path("other/TOKEN"), path("mine/moved/TOKEN"));
  EXPECT_EQ(write_secrets(made, some, nullptr), EEXIST);
  EXPECT_TRUE(fs::is_empty(path("other")));
}

// It lies in the rank's folder, and the rank may have written it.
TEST_F(Secrets, ANoteThatLeadsElsewhereRemovesNothing) {
  fs::create_directory(path("mine"));
  const std::string other = "/dev/shm/tutti-other-" + std::to_string(getpid());
  fs::create_directory(other);
  for (const std::string& target :
       {path("mine"), other, std::string("/dev/shm"), std::string("/dev/shm/"),
        "/dev/shm/tutti-secrets-x/../" + other.substr(9), path("tutti-secrets-abc"), std::string()}) {
    std::ofstream(path("secrets_at")) << target;
    remove_secrets_folder(folder());
  }
  EXPECT_TRUE(fs::exists(path("mine")) && fs::exists(other) && fs::exists("/dev/shm"));
  // A link of that name is not followed.
  const std::string link = "/dev/shm/tutti-secrets-" + std::to_string(getpid());
  fs::create_directory_symlink(other, link);
  std::ofstream(path("secrets_at")) << link;
  remove_secrets_folder(folder());
  EXPECT_TRUE(fs::exists(other));
  fs::remove(link);
  fs::remove(other);
}

// What mountinfo says of it: how it is mounted, and what of the file system that lies there.
struct Mounted {
  std::string options;
  std::string of_all;
};
Mounted mounted_at(const std::string& place) {
  std::ifstream table("/proc/self/mountinfo");
  for (std::string line; std::getline(table, line);) {
    std::istringstream words(line);
    std::vector<std::string> fields{std::istream_iterator<std::string>(words), {}};
    if (fields.size() > 8 && fields[4] == place) return {"," + fields[5] + ",", "," + fields.back() + ","};
  }
  return {};
}

TEST_F(Secrets, AMountIsTheRanksOwnAndNobodyElseSeesIt) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  if (!can_have_private_mounts()) GTEST_SKIP() << "needs mount namespaces";
  const PrivatePlaces places{.folder = "/var/lib/tutti-secrets-test-" + std::to_string(getpid()),
                             .memory = "/dev/shm/tutti-secrets-test-" + std::to_string(getpid())};
  ASSERT_TRUE(make_private_places(places));
  EXPECT_TRUE(holds_in_a_child([&] {
    std::string where;
    if (enter_private_places(places) != 0 || mount_secrets(some, its_account(), where) != 0) return false;
    // The mount alone is closed: some kernels refuse to close what lies there.
    const Mounted mounted = mounted_at(where);
    for (const char* closed : {",ro,", ",nosuid,", ",nodev,", ",noexec,"})
      if (mounted.options.find(closed) == std::string::npos) return false;
    if (mounted.of_all.find(",rw,") == std::string::npos) return false;
    struct statfs kind {};
    struct stat status {};
    bool holds =
        statfs(where.c_str(), &kind) == 0 && kind.f_type == kind_of_tmpfs && (kind.f_flags & read_only) != 0;
    holds = holds && stat(where.c_str(), &status) == 0 && status.st_uid == 23'456 &&
            (status.st_mode & 07777) == 0500;
    for (const SecretFile& secret : some) {
      const std::string path = where + "/" + secret.name;
      holds = holds && stat(path.c_str(), &status) == 0 && status.st_uid == 23'456 &&
              (status.st_mode & 07777) == 0400 && text_in(path) == secret.value;
    }
    return holds;
  }));
  // Of all that lies below the places nothing has a value: the mount was over it.
  for (const std::string& root : {places.folder, places.memory})
    for (const auto& entry : fs::recursive_directory_iterator(root)) {
      if (!entry.is_regular_file()) continue;
      EXPECT_EQ(text_in(entry.path()).find("value"), std::string::npos) << entry.path();
    }
  fs::remove_all(places.folder);
  fs::remove_all(places.memory);
}

}  // namespace
}  // namespace tutti::rank
