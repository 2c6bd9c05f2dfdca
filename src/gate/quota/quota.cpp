#include "gate/quota/quota.hpp"

#include <algorithm>
#include <set>

namespace tutti::gate {
namespace {

constexpr Duration day = 24h;

}  // namespace

void Quota::advance(Instant now) {
  now_ = std::max(now_, now);
  const std::int64_t today = now_.time_since_epoch() / day;
  if (today == day_) return;
  day_ = today;
  for (auto& [name, usage] : usage_) usage.tokens_today = 0;
}

Duration Quota::wait_of(const KeyRules& key) {
  if (key.requests_per_minute == 0) return {};
  const auto per_minute = static_cast<double>(key.requests_per_minute);
  const Rate rate{.per_second = per_minute / 60, .burst = per_minute};
  auto [pace, is_new] = paces_.try_emplace(key.name, Pace{key.requests_per_minute, TokenBucket(rate, now_)});
  // Another limit begins anew.
  if (pace->second.per_minute != key.requests_per_minute)
    pace->second = {key.requests_per_minute, TokenBucket(rate, now_)};
  return pace->second.bucket.take(now_);
}

std::optional<Quota::Refusal> Quota::begin(const KeyRules& key, Instant now) {
  advance(now);
  KeyUsage& usage = usage_[key.name];
  if (key.tokens_per_day > 0 && usage.tokens_today >= key.tokens_per_day) {
    ++usage.refused;
    return Refusal{Limit::tokens, day - now_.time_since_epoch() % day};
  }
  if (const Duration wait = wait_of(key); wait > Duration::zero()) {
    ++usage.refused;
    return Refusal{Limit::requests, wait};
  }
  ++usage.requests;
  ++usage.under_way;
  return std::nullopt;
}

void Quota::end(const std::string& name, std::int64_t tokens, Instant now) {
  advance(now);
  const auto found = usage_.find(name);
  if (found == usage_.end()) return;
  found->second.tokens += tokens;
  found->second.tokens_today += tokens;
  --found->second.under_way;
}

void Quota::keep_only(const Keys& keys) {
  std::set<std::string> names;
  for (const auto& [hash, rules] : keys) names.insert(rules.name);
  const auto is_gone = [&](const auto& each) { return !names.contains(each.first); };
  std::erase_if(usage_, [&](const auto& each) { return is_gone(each) && each.second.under_way == 0; });
  std::erase_if(paces_, is_gone);
}

}  // namespace tutti::gate
