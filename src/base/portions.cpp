#include "base/portions.hpp"

#include "base/check.hpp"

namespace tutti {

void Holdings::add(const std::string& who, std::size_t count) {
  if (count == 0) return;
  holders_[who] += count;  // first: there may be no memory for it
  all_ += count;
}

void Holdings::remove(const std::string& who, std::size_t count) {
  if (count == 0) return;
  const auto known = holders_.find(who);
  TUTTI_CHECK(known != holders_.end() && known->second >= count, "it was taken");
  all_ -= count;
  if ((known->second -= count) == 0) holders_.erase(known);
}

std::size_t Holdings::of(const std::string& who) const {
  const auto known = holders_.find(who);
  return known == holders_.end() ? 0 : known->second;
}

bool Portions::take(const std::string& who, std::size_t count) {
  if (count == 0) return true;
  const std::size_t left = most_ - all();
  const std::size_t held = of(who);
  if (count > left || (held > 0 && held + count > times_what_is_left * left)) return false;
  held_.add(who, count);
  return true;
}

}  // namespace tutti
