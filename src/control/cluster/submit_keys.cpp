#include "control/cluster/submit_keys.hpp"

namespace tutti::cluster {

std::optional<sched::JobId> SubmitKeys::find(const std::string& key, Instant now) const {
  const auto known = keys_.find(key);
  if (known == keys_.end() || now - known->second.at > submit_key_time_max) return std::nullopt;
  return known->second.job;
}

void SubmitKeys::add(const std::string& key, sched::JobId job, Instant at) {
  keys_.insert_or_assign(key, Known{job, at});
  oldest_first_.emplace_back(at, key);
  while (oldest_first_.size() > submit_keys_max || at - oldest_first_.front().first > submit_key_time_max) {
    // A key that was used again later is that of the later submit.
    const auto old = keys_.find(oldest_first_.front().second);
    if (old != keys_.end() && old->second.at == oldest_first_.front().first) keys_.erase(old);
    oldest_first_.pop_front();
  }
}

}  // namespace tutti::cluster
