// The way of secrets to a rank: through memory, into files in memory that are its own.
#include "node/rank/secrets.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

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

TEST_F(Secrets, AMountIsTheRanksOwnAndNobodyElseSeesIt) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  if (!can_have_private_mounts()) GTEST_SKIP() << "needs mount namespaces";
  const PrivatePlaces places{.folder = "/var/lib/tutti-secrets-test-" + std::to_string(getpid()),
                             .memory = "/dev/shm/tutti-secrets-test-" + std::to_string(getpid())};
  ASSERT_TRUE(make_private_places(places));
  const Account account{
      .name = "somebody", .uid = 23'456, .gid = 23'456, .groups = {23'456}, .home = "/", .shell = "/bin/sh"};
  EXPECT_TRUE(holds_in_a_child([&] {
    std::string where;
    if (enter_private_places(places) != 0 || mount_secrets(some, account, where) != 0) return false;
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
    for (const auto& entry : fs::recursive_directory_iterator(root))
      EXPECT_FALSE(entry.is_regular_file()) << entry.path();
  fs::remove_all(places.folder);
  fs::remove_all(places.memory);
}

}  // namespace
}  // namespace tutti::rank
