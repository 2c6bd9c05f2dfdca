// An account of Unix that nobody else has, for as long as the object lives. It is added to what this process
// and those that it starts see as /etc/passwd, in a mount namespace of their own: the machine's own file
// stays as it is, and nothing is left of the account even if the benchmark is killed. One thread, before
// others are started.
#pragma once

#include <memory>
#include <string>

#include "base/result.hpp"

namespace tutti::bench {

class Account {
 public:
  // Fails with what is missing: the rights of root, or the right to mount.
  static Result<std::unique_ptr<Account>> make();
  Account(const Account&) = delete;
  Account& operator=(const Account&) = delete;
  ~Account();

  const std::string& name() const { return name_; }

 private:
  Account() = default;
  Result<> add();

  std::string name_;
  std::string file_;  // mounted over /etc/passwd
  bool is_mounted_ = false;
};

}  // namespace tutti::bench
