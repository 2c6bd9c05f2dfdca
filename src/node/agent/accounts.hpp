// Which Unix account a user's ranks run as: the one of the user's name, or what a file of the node's operator
// says, a line `NAME ACCOUNT` each. Any thread, and never the agent's loop: the node's directory of users and
// the file's disk may take any time.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "base/result.hpp"
#include "node/rank/account.hpp"

namespace tutti::agent {

constexpr std::size_t users_file_bytes_max = std::size_t{1} << 20;
constexpr std::size_t users_lines_max = 20'000;

// By user. Refuses what is no such file, with the number of the line.
Result<std::map<std::string, std::string>> parse_users(const std::string& content);

class Accounts {
 public:
  // "": no file, all users have their own names.
  explicit Accounts(std::string users_file) : file_(std::move(users_file)) {}
  Accounts(const Accounts&) = delete;
  Accounts& operator=(const Accounts&) = delete;

  // Reads the file if it is another one than the last time. After an error what was read before holds.
  Result<> read_again();
  // Nothing if this node has no such account. What find_account() says, with who it is for.
  Result<std::optional<rank::Account>> account_of(const std::string& user) const;
  // Its name, whether this node has it or not.
  std::string name_of(const std::string& user) const;

 private:
  // Tells a file from one that has been changed or has taken its place.
  using State = std::string;

  const std::string file_;
  mutable std::mutex mutex_;
  State state_;
  std::map<std::string, std::string> accounts_;  // by user
};

}  // namespace tutti::agent
