#include "control/cluster/submit_keys.hpp"

namespace tutti::cluster {

std::optional<sched::JobId> SubmitKeys::find(const std::string& user, const std::string& key,
                                             Instant now) const {
  const auto known = keys_.find({user, key});
  if (known == keys_.end() || now - known->second.at > submit_key_time_max) return std::nullopt;
  return known->second.job;
}

template <class Change>
void SubmitKeys::change(const std::string& user, Change change) {
  const auto his = users_.try_emplace(user).first;
  most_last_.erase({his->second.size(), user});
  change(his->second);
  if (his->second.empty()) {
    users_.erase(his);
  } else {
    most_last_.emplace(his->second.size(), user);
  }
}

void SubmitKeys::remove(std::uint64_t number) {
  const auto old = oldest_first_.find(number);
  const auto known = keys_.find(old->second);
  change(known->first.first, [number](auto& numbers) { numbers.erase(number); });
  keys_.erase(known);
  oldest_first_.erase(old);
}

void SubmitKeys::add(const std::string& user, const std::string& key, sched::JobId job, Instant at) {
  // A key that is used again is that of the later submit.
  const Key his{user, key};
  if (const auto known = keys_.find(his); known != keys_.end()) remove(known->second.number);
  const std::uint64_t number = ++added_;
  keys_.insert_or_assign(his, Known{job, at, number});
  oldest_first_.emplace(number, his);
  change(user, [number](auto& numbers) { numbers.insert(number); });
  while (at - keys_.at(oldest_first_.begin()->second).at > submit_key_time_max)
    remove(oldest_first_.begin()->first);
  if (keys_.size() > submit_keys_max) remove(*users_.at(most_last_.rbegin()->second).begin());
}

void SubmitKeys::move(Duration by) {
  for (auto& [key, known] : keys_) known.at += by;
}

}  // namespace tutti::cluster
