// How users share what is bounded for all of them together, as the number of unfinished jobs is. Nobody may
// hold more than three times what is left then: one user alone gets three quarters of it, and whoever comes
// later finds room, however much the first ones want. A value: owned by the state's loop.
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "base/result.hpp"

namespace tutti::cluster {

class Shares {
 public:
  void add(const std::string& user, std::size_t count);
  void remove(const std::string& user, std::size_t count);

  std::size_t all() const { return all_; }
  std::size_t of_user(const std::string& user) const;

  // May the user hold so many more, where there is room for `most`? `what` they are, for the refusal.
  Result<> admit(const std::string& user, std::size_t more, std::size_t most, const std::string& what) const;

  friend bool operator==(const Shares&, const Shares&) = default;

 private:
  std::map<std::string, std::size_t> users_;
  std::size_t all_ = 0;
};

}  // namespace tutti::cluster
