// How many follow events and logs, in all, from each address and of each user. Each of them is written to for
// every change, read or not, and so takes of the loop that hears the agents. The network loop's.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <new>
#include <string>

namespace tutti::controller {

constexpr std::size_t audience_max = 8'192;
// A whole office may come from one.
constexpr std::size_t audience_per_address_max = 2'048;
// Nobody takes the places of all others, however many addresses he comes from.
constexpr std::size_t audience_per_person_max = 2'048;

// Who follows: from where, and as whom, "" for whoever has the cluster's own token.
struct Follower {
  std::string address;
  std::string person;
};

struct AudienceLimits {
  std::size_t all = audience_max;
  std::size_t per_address = audience_per_address_max;
  std::size_t per_person = audience_per_person_max;
};
// Where no more than so many connections can be, in all and of one address: those who follow leave room for
// agents and for who only asks, from their own address, too.
inline AudienceLimits audience_within(std::size_t connections, std::size_t connections_per_address) {
  const auto part = [](std::size_t most, std::size_t of) { return std::clamp<std::size_t>(of, 1, most); };
  AudienceLimits limits;
  limits.all = part(limits.all, connections / 2);
  limits.per_address = part(limits.per_address, connections_per_address / 2);
  limits.per_person = part(limits.per_person, connections / 8);
  return limits;
}

class Audience {
 public:
  explicit Audience(const AudienceLimits& limits = {}) : limits_(limits) {}
  void limit(const AudienceLimits& limits) { limits_ = limits; }

  enum class Answer { welcome, full, address_is_full, person_is_full };

  // Whoever is welcome counts until it leaves.
  Answer enter(const Follower& who) {
    if (all_ >= limits_.all) return Answer::full;
    if (count_of(by_address_, who.address) >= limits_.per_address) return Answer::address_is_full;
    if (!who.person.empty() && count_of(by_person_, who.person) >= limits_.per_person)
      return Answer::person_is_full;
    // First what there may be no memory for.
    auto& here = by_address_[who.address];
    try {
      if (!who.person.empty()) ++by_person_[who.person];
    } catch (const std::bad_alloc&) {
      if (here == 0) by_address_.erase(who.address);
      throw;
    }
    ++here;
    ++all_;
    return Answer::welcome;
  }
  void leave(const Follower& who) {
    if (!take_from(by_address_, who.address)) return;
    --all_;
    if (!who.person.empty()) take_from(by_person_, who.person);
  }

 private:
  using Counts = std::map<std::string, std::size_t>;

  static std::size_t count_of(const Counts& counts, const std::string& name) {
    const auto counted = counts.find(name);
    return counted == counts.end() ? 0 : counted->second;
  }
  static bool take_from(Counts& counts, const std::string& name) {
    const auto counted = counts.find(name);
    if (counted == counts.end()) return false;
    if (--counted->second == 0) counts.erase(counted);
    return true;
  }

  AudienceLimits limits_;
  std::size_t all_ = 0;
  Counts by_address_;
  Counts by_person_;
};

}  // namespace tutti::controller
