#include "common/account.hpp"

#include <pwd.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "support/process.hpp"

namespace tutti::bench {
namespace {

constexpr const char* accounts_file = "/etc/passwd";
// Beside those of people, and such as ranks may have.
constexpr uid_t first_uid = 20'000;
constexpr uid_t end_uid = 60'000;

Result<uid_t> free_uid() {
  for (uid_t uid = first_uid; uid < end_uid; ++uid)
    if (::getpwuid(uid) == nullptr) return uid;
  return failed("all ids of users are taken");
}

}  // namespace

Result<std::unique_ptr<Account>> Account::make() {
  if (::geteuid() != 0) return failed("only root can run ranks as somebody else, and this is not root");
  std::unique_ptr<Account> account(new Account);
  if (auto added = account->add(); !added)
    return std::move(added).error().within("an account for the benchmark");
  return account;
}

Result<> Account::add() {
  if (::unshare(CLONE_NEWNS) != 0) return failed_errno("no mount namespace can be made", errno);
  if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
    return failed_errno("the mounts cannot be made this process's own", errno);
  const auto uid = free_uid();
  if (!uid) return uid.error();
  name_ = "tutti-bench-" + std::to_string(::getpid());
  std::string path = "/var/lib/" + name_ + "-XXXXXX";
  const int made = ::mkstemp(path.data());
  if (made < 0) return failed_errno("a file in /var/lib cannot be made", errno);
  ::close(made);
  file_ = path;
  const std::string id = std::to_string(*uid);
  support::write_text(file_,
                      support::read_text(accounts_file) + name_ + ":x:" + id + ":" + id + "::/:/bin/sh\n");
  if (::chmod(file_.c_str(), 0644) != 0) return failed_errno("it cannot be made readable", errno);
  if (::mount(file_.c_str(), accounts_file, nullptr, MS_BIND, nullptr) != 0)
    return failed_errno("it cannot be added to " + std::string(accounts_file), errno);
  is_mounted_ = true;
  if (::getpwnam(name_.c_str()) == nullptr) return failed("the system does not look into /etc/passwd");
  return {};
}

Account::~Account() {
  if (is_mounted_) ::umount2(accounts_file, MNT_DETACH);
  if (!file_.empty()) ::unlink(file_.c_str());
}

}  // namespace tutti::bench
