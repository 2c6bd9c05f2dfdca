// Which Unix account a user's ranks run as: the one of the user's name, or what a file of the node's operator
// says, a line `NAME ACCOUNT` each. Any thread, and never the agent's loop: the node's directory of users and
// the file's disk may take any time.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "base/result.hpp"
#include "node/rank/account.hpp"

namespace tutti::agent {

constexpr std::size_t users_file_bytes_max = std::size_t{1} << 20;
constexpr std::size_t users_lines_max = 20'000;
constexpr std::size_t answers_max = 1'000;

// By user. Refuses what is no such file, with the number of the line.
Result<std::map<std::string, std::string>> parse_users(const std::string& content);

class Accounts {
 public:
  using Clock = std::chrono::steady_clock;
  using Find = std::function<Result<std::optional<rank::Account>>(const std::string& name)>;

  // "": no file, all users have their own names. `find` asks the node's directory.
  explicit Accounts(
      std::string users_file, Find find = [](const std::string& name) { return rank::find_account(name); })
      : file_(std::move(users_file)), find_(std::move(find)) {}
  Accounts(const Accounts&) = delete;
  Accounts& operator=(const Accounts&) = delete;

  // Reads the file if it is another one than the last time. After an error what was read before holds.
  Result<> read_again();
  // Nothing if this node has no such account. What find_account() says, with who it is for: of hundreds who
  // have asked for one account when the directory answers, it answers all.
  Result<std::optional<rank::Account>> account_of(const std::string& user,
                                                  Clock::time_point asked_at = Clock::now());
  // Its name, whether this node has it or not.
  std::string name_of(const std::string& user) const;

 private:
  // Tells a file from one that has been changed or has taken its place.
  using State = std::string;
  struct Answer {
    Clock::time_point at;
    Result<std::optional<rank::Account>> account;
  };

  Result<std::optional<rank::Account>> find(const std::string& name, Clock::time_point asked_at);

  const std::string file_;
  const Find find_;
  mutable std::mutex mutex_;
  std::map<std::string, Answer> answers_;  // the last of the directory, by account
  State state_;
  std::map<std::string, std::string> accounts_;  // by user
};

}  // namespace tutti::agent
