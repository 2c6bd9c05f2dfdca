#include "base/portions.hpp"

#include "base/check.hpp"

namespace tutti {
namespace {

constexpr std::size_t times_what_is_left = 3;

}  // namespace

std::size_t Portions::of(const std::string& who) const {
  const auto known = held_.find(who);
  return known == held_.end() ? 0 : known->second;
}

bool Portions::take(const std::string& who, std::size_t count) {
  if (count == 0) return true;
  const std::size_t left = most_ - all_;
  const std::size_t held = of(who);
  if (count > left || (held > 0 && held + count > times_what_is_left * left)) return false;
  all_ += count;
  held_[who] += count;
  return true;
}

void Portions::give_back(const std::string& who, std::size_t count) {
  if (count == 0) return;
  const auto known = held_.find(who);
  TUTTI_CHECK(known != held_.end() && known->second >= count, "it was taken");
  all_ -= count;
  if ((known->second -= count) == 0) held_.erase(known);
}

}  // namespace tutti
