// How many follow events and logs, in all and from each address. Each of them is written to for every change,
// read or not, and so takes of the loop that hears the agents. The network loop's.
#pragma once

#include <cstddef>
#include <map>
#include <string>

namespace tutti::controller {

constexpr std::size_t audience_max = 8'192;
// A whole office may come from one.
constexpr std::size_t audience_per_address_max = 2'048;

class Audience {
 public:
  enum class Answer { welcome, full, address_is_full };

  // Whoever is welcome counts until it leaves.
  Answer enter(const std::string& address) {
    if (all_ >= audience_max) return Answer::full;
    const auto here = by_address_.find(address);
    if (here != by_address_.end() && here->second >= audience_per_address_max) return Answer::address_is_full;
    ++by_address_[address];  // first: there may be no memory for it
    ++all_;
    return Answer::welcome;
  }
  void leave(const std::string& address) {
    const auto here = by_address_.find(address);
    if (here == by_address_.end()) return;
    --all_;
    if (--here->second == 0) by_address_.erase(here);
  }

 private:
  std::size_t all_ = 0;
  std::map<std::string, std::size_t> by_address_;
};

}  // namespace tutti::controller
