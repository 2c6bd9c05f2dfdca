#include "control/cluster/usage.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <tuple>

#include "control/cluster/model.hpp"

namespace tutti::cluster {
namespace {

constexpr double ln2 = 0.693147180559945309417232121458;

double left_of(double amount, Duration after) {
  return amount * std::exp2(-in_seconds(after) / in_seconds(usage_half_life));
}

}  // namespace

// What is older than what is there already counts as less.
void PastUse::add(double more, Instant now) {
  if (now < at) more = left_of(more, at - now);
  if (now > at) {
    amount = left_of(amount, now - at);
    at = now;
  }
  amount += more;
}

double PastUse::left(Instant now) const { return now > at ? left_of(amount, now - at) : amount; }

// Constant use of one device comes out as 1000 after a while.
Usage::Use Usage::Used::use(Instant now) const {
  return {in_use, left(now) * ln2 / in_seconds(usage_half_life) * sched::whole_share, waiting, running};
}

template <class Visit>
void Usage::visit(const std::string& queue, const std::string& user, Visit visit) {
  for (QueueName name = queue; !name.empty(); name = parent_of(name)) visit(queues_[name]);
  visit(users_[{queue, user}]);
}

template <class Visit>
void Usage::visit(const Job& job, Visit visit) {
  this->visit(job.spec.queue, job.spec.user, visit);
}

void Usage::changed(const Change& change) {
  const std::int64_t share = gpu_share_total(change.job);
  if (change.enters(Phase::waiting)) visit(change.job, [](Used& used) { ++used.waiting; });
  if (change.leaves(Phase::waiting)) visit(change.job, [](Used& used) { --used.waiting; });
  if (change.enters(Phase::running)) {
    visit(change.job, [&](Used& used) {
      ++used.running;
      used.in_use += share;
    });
  }
  if (!change.leaves(Phase::running)) return;
  const Instant until = change.job.ended_at == Instant() ? change.now : change.job.ended_at;
  const double amount =
      static_cast<double>(share) / sched::whole_share * in_seconds(until - change.job.started_at);
  visit(change.job, [&](Used& used) {
    --used.running;
    used.in_use -= share;
    used.add(amount, change.now);
  });
}

void Usage::remember(const Job& job, Instant at) {
  visit(job, [&](Used& used) { used.add(job.served, at); });
}

void Usage::remember(const std::string& queue, const std::string& user, const PastUse& past) {
  visit(queue, user, [&](Used& used) { used.add(past.amount, past.at); });
}

void Usage::move(Duration by) {
  for (auto& [name, used] : queues_) used.at += by;
  for (auto& [name, used] : users_) used.at += by;
}

void Usage::forget_some(Instant now, std::size_t users) {
  auto at = users_.upper_bound(looked_at_);
  for (; users > 0 && at != users_.end(); --users) {
    looked_at_ = at->first;
    const bool weighs = at->second.has_jobs() || at->second.left(now) >= use_forgotten_below;
    at = weighs ? std::next(at) : users_.erase(at);
  }
  if (at == users_.end()) looked_at_ = {};
}

Usage::Use Usage::of_queue(const std::string& queue, Instant now) const {
  const auto at = queues_.find(queue);
  return at == queues_.end() ? Use() : at->second.use(now);
}

Usage::Use Usage::of_user(const std::string& queue, const std::string& user, Instant now) const {
  const auto at = users_.find({queue, user});
  return at == users_.end() ? Use() : at->second.use(now);
}

std::vector<std::pair<std::string, Usage::Use>> Usage::users_of_queue(const std::string& queue,
                                                                      Instant now) const {
  std::vector<std::pair<std::string, Use>> users;
  for (auto at = users_.lower_bound({queue, ""}); at != users_.end() && at->first.first == queue; ++at)
    users.emplace_back(at->first.second, at->second.use(now));
  return users;
}

bool Usage::same_in_use(const Usage& other) const {
  const auto held = [](const auto& all) {
    std::vector<std::tuple<decltype(all.begin()->first), std::int64_t, std::int32_t, std::int32_t>> found;
    for (const auto& [name, used] : all) {
      if (used.has_jobs()) found.emplace_back(name, used.in_use, used.waiting, used.running);
    }
    return found;
  };
  return held(queues_) == held(other.queues_) && held(users_) == held(other.users_);
}

}  // namespace tutti::cluster
