#include "node/agent/accounts.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <string_view>
#include <utility>
#include <vector>

#include "base/files/files.hpp"
#include "base/files/names.hpp"
#include "base/text.hpp"

namespace tutti::agent {
namespace {

constexpr std::size_t user_bytes_max = 128;  // as of jobs

// Blanks of any number between them.
std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  for (const auto part : split(line, '\t'))
    for (const auto word : split(part, ' '))
      if (!word.empty()) words.push_back(word);
  return words;
}

Error wrong(std::size_t line, const std::string& why) {
  return invalid("line " + std::to_string(line) + ": " + why)
      .remedy("a line is NAME ACCOUNT: a user of the cluster, and an account of this node");
}

}  // namespace

Result<std::map<std::string, std::string>> parse_users(const std::string& content) {
  std::map<std::string, std::string> accounts;
  std::size_t number = 0;
  for (const auto line : split(content, '\n')) {
    if (++number > users_lines_max)
      return wrong(number, "it has more than " + std::to_string(users_lines_max) + " lines");
    if (trim(line).empty() || trim(line).front() == '#') continue;
    const auto words = words_of(trim(line));
    if (words.size() != 2) return wrong(number, "it has not two words");
    if (words[0].size() > user_bytes_max) return wrong(number, "the name of the user is too long");
    if (!rank::is_account_name(words[1]))
      return wrong(number, files::shown(words[1]) + " cannot be the name of an account");
    if (!accounts.try_emplace(std::string(words[0]), words[1]).second)
      return wrong(number, files::shown(words[0]) + " is there twice");
  }
  return accounts;
}

Result<> Accounts::read_again() {
  if (file_.empty()) return {};
  const auto opened = files::open_existing_file(file_);
  if (!opened) return opened.error();
  struct stat status {};
  if (::fstat(opened->file.get(), &status) != 0) return failed_errno("cannot read " + file_, errno);
  // Whoever may write there decides who everybody is.
  if ((status.st_uid != 0 && status.st_uid != ::geteuid()) || (status.st_mode & 0022) != 0)
    return invalid("others than root may write to " + files::printable(file_))
        .remedy("`chown root FILE; chmod 644 FILE`");
  const State state = std::to_string(status.st_dev) + " " + std::to_string(status.st_ino) + " " +
                      std::to_string(status.st_size) + " " + std::to_string(status.st_mtim.tv_sec) + "." +
                      std::to_string(status.st_mtim.tv_nsec) + " " + std::to_string(status.st_ctim.tv_sec) +
                      "." + std::to_string(status.st_ctim.tv_nsec);
  {
    const std::lock_guard lock(mutex_);
    if (state == state_) return {};
  }
  const auto content = files::read_existing_file(file_, users_file_bytes_max);
  if (!content) return content.error();
  auto accounts = parse_users(*content);
  if (!accounts) return std::move(accounts).error().within(files::printable(file_));
  const std::lock_guard lock(mutex_);
  state_ = state;
  accounts_ = *std::move(accounts);
  return {};
}

std::string Accounts::name_of(const std::string& user) const {
  const std::lock_guard lock(mutex_);
  const auto mapped = accounts_.find(user);
  return mapped == accounts_.end() ? user : mapped->second;
}

Result<std::optional<rank::Account>> Accounts::find(const std::string& name, Clock::time_point asked_at) {
  {
    const std::lock_guard lock(mutex_);
    const auto known = answers_.find(name);
    if (known != answers_.end() && known->second.at >= asked_at) return known->second.account;
  }
  auto account = find_(name);
  const std::lock_guard lock(mutex_);
  if (answers_.size() >= answers_max) answers_.clear();
  answers_.insert_or_assign(name, Answer{Clock::now(), account});
  return account;
}

Result<std::optional<rank::Account>> Accounts::account_of(const std::string& user,
                                                          Clock::time_point asked_at) {
  if (user.empty()) return invalid("it is not known whose job this is: ranks run as the account of its user");
  auto account = find(name_of(user), asked_at);
  if (!account) return std::move(account).error().within("the user " + files::printable(user));
  return account;
}

}  // namespace tutti::agent
