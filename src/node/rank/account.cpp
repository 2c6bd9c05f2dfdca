#include "node/rank/account.hpp"

#include <grp.h>
#include <linux/capability.h>
#include <linux/keyctl.h>
#include <pwd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <system_error>

#include "node/rank/call_filter.hpp"

namespace tutti::rank {
namespace {

constexpr std::size_t entry_bytes_first = 16'384;
constexpr std::size_t entry_bytes_max = std::size_t{4} << 20;
constexpr int groups_first = 64;
constexpr uid_t nobody = 65'534;

bool may_begin_a_name(char letter) {
  return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') || letter == '_';
}

bool may_be_in_a_name(char letter) {
  return may_begin_a_name(letter) || (letter >= '0' && letter <= '9') || letter == '.' || letter == '-' ||
         letter == '@' || letter == '+';
}

// Some directories say that there is none with an error.
bool means_none(int error_number) {
  return error_number == ENOENT || error_number == ESRCH || error_number == EBADF || error_number == EPERM;
}

Result<std::vector<gid_t>> groups_of(const std::string& name, gid_t own) {
  int count = groups_first;
  std::vector<gid_t> groups(static_cast<std::size_t>(count));
  while (getgrouplist(name.c_str(), own, groups.data(), &count) < 0) {
    if (std::cmp_less_equal(count, groups.size()) || std::cmp_greater(count, account_groups_max))
      return failed("the groups of the account " + name + " cannot be read");
    groups.resize(static_cast<std::size_t>(count));
  }
  groups.resize(static_cast<std::size_t>(count));
  return groups;
}

// In the message, which is all that reaches whoever has submitted the job.
constexpr const char* what_to_do =
    "; submit as a person who has an account there, or have the node's operator map the name (`tutti agent "
    "--users`)";

Error refused(const Account& account, const std::string& why) {
  return invalid("ranks do not run as the account " + account.name + " (uid " + std::to_string(account.uid) +
                 "), because " + why + what_to_do);
}

bool has_capabilities() {
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3] = {};
  if (syscall(SYS_capget, &header, sets) != 0) return true;
  return std::any_of(std::begin(sets), std::end(sets), [](const __user_cap_data_struct& set) {
    return (set.effective | set.permitted | set.inheritable) != 0;
  });
}

bool drop_capabilities() {
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  const __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {};
  prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  return syscall(SYS_capset, &header, none) == 0 && !has_capabilities();
}

bool is_wholly(const Account& account) {
  uid_t real = 0;
  uid_t effective = 0;
  uid_t saved = 0;
  if (getresuid(&real, &effective, &saved) != 0) return false;
  if (real != account.uid || effective != account.uid || saved != account.uid) return false;
  gid_t real_group = 0;
  gid_t effective_group = 0;
  gid_t saved_group = 0;
  if (getresgid(&real_group, &effective_group, &saved_group) != 0) return false;
  return real_group == account.gid && effective_group == account.gid && saved_group == account.gid;
}

// By trying.
bool can_go_back() {
  constexpr auto same = static_cast<uid_t>(-1);
  return setuid(0) == 0 || setresuid(same, 0, same) == 0 || setgid(0) == 0;
}

}  // namespace

bool is_account_name(std::string_view name) {
  return !name.empty() && name.size() <= account_name_bytes_max && may_begin_a_name(name.front()) &&
         std::all_of(name.begin(), name.end(), may_be_in_a_name);
}

Result<> check_account(const Account& account) {
  if (account.uid == 0) return refused(account, "it is root's");
  // Files of others belong to it where numbers have no account.
  if (account.uid == nobody || account.uid == static_cast<uid_t>(-1))
    return refused(account, "it is nobody's");
  const auto& groups = account.groups;
  // Whoever is in it sees processes that are hidden from others.
  if (account.gid == 0 || std::find(groups.begin(), groups.end(), gid_t{0}) != groups.end())
    return refused(account, "it is in root's group");
  if (account.groups.size() > account_groups_max) return refused(account, "it is in too many groups");
  return {};
}

Result<> check_person(const Account& account, const PeopleIds& people) {
  auto fine = check_account(account);
  if (fine && (account.uid < people.min || account.uid > people.max))
    return refused(account, "it is one of the system's, as all with a uid below " +
                                std::to_string(people.min) + " or above " + std::to_string(people.max) +
                                " (`tutti agent --uids`)");
  return fine;
}

Result<PeopleIds> parse_people_ids(std::string_view text) {
  const std::size_t dash = text.find('-');
  const auto number = [](std::string_view digits) -> std::optional<uid_t> {
    uid_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (digits.empty() || error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
    return value;
  };
  const auto min = number(text.substr(0, dash));
  const auto max = dash == std::string_view::npos ? std::nullopt : number(text.substr(dash + 1));
  if (!min || !max || *min == 0 || *min > *max)
    return invalid("it is not MIN-MAX, two numbers above 0")
        .remedy("such as 1000-60000, or 100000-2000000000");
  return PeopleIds{*min, *max};
}

Result<std::optional<Account>> find_account(const std::string& name, const PeopleIds& people) {
  if (!is_account_name(name))
    return invalid("'" + name.substr(0, account_name_bytes_max) + "' cannot be the name of an account" +
                   what_to_do);
  std::vector<char> buffer(entry_bytes_first);
  passwd entry{};
  passwd* found = nullptr;
  int error_number = ERANGE;
  while (error_number == ERANGE || error_number == EINTR) {
    if (error_number == ERANGE && buffer.size() > entry_bytes_max) break;
    error_number = getpwnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found);
    if (error_number == ERANGE) buffer.resize(buffer.size() * 4);
  }
  if (found == nullptr && error_number != 0 && !means_none(error_number))
    return failed_errno("the node's directory of users does not say who " + name + " is", error_number);
  if (found == nullptr) return std::optional<Account>();
  Account account{.name = name,
                  .uid = entry.pw_uid,
                  .gid = entry.pw_gid,
                  .groups = {},
                  .home = entry.pw_dir == nullptr ? "" : entry.pw_dir,
                  .shell = entry.pw_shell == nullptr ? "" : entry.pw_shell};
  auto groups = groups_of(name, account.gid);
  if (!groups) return std::move(groups).error();
  account.groups = *std::move(groups);
  if (auto fine = check_person(account, people); !fine) return std::move(fine).error();
  return std::optional(std::move(account));
}

int become(const Account& account) {
  if (!check_account(account)) return EPERM;
  if (setgroups(account.groups.size(), account.groups.data()) != 0) return errno;
  if (setresgid(account.gid, account.gid, account.gid) != 0) return errno;
  if (setresuid(account.uid, account.uid, account.uid) != 0) return errno;
  if (!drop_capabilities() || !is_wholly(account) || can_go_back()) return EPERM;
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) return errno;
  // A kernel without keys has none to leave behind.
  if (syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, nullptr) < 0 && errno != ENOSYS && errno != EPERM)
    return errno;
  return forbid_calls();
}

}  // namespace tutti::rank
