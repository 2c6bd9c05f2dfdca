// How users share what is bounded for all of them together, as the number of unfinished jobs is: as
// base/portions.hpp has it, but judged by what would be left then, so that nobody takes the last of it. What
// a store holds is counted whether it would be let in or not, and a refusal says who holds too much. A value:
// owned by the state's loop.
#pragma once

#include <cstddef>
#include <string>

#include "base/portions.hpp"
#include "base/result.hpp"

namespace tutti::cluster {

class Shares {
 public:
  void add(const std::string& user, std::size_t count) { held_.add(user, count); }
  void remove(const std::string& user, std::size_t count) { held_.remove(user, count); }

  std::size_t all() const { return held_.all(); }
  std::size_t of_user(const std::string& user) const { return held_.of(user); }

  // May the user hold so many more, where there is room for `most`? `what` they are, for the refusal.
  Result<> admit(const std::string& user, std::size_t more, std::size_t most, const std::string& what) const;

  friend bool operator==(const Shares&, const Shares&) = default;

 private:
  Holdings held_;
};

}  // namespace tutti::cluster
