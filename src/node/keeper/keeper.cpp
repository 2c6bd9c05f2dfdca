#include "node/keeper/keeper.hpp"

#include <limits>

namespace tutti::keeper {

using cluster::RankState;

Keeper::Keeper(cluster::Hello self, Processes& processes, Send send, BeforeEnd before_end)
    : self_(std::move(self)),
      processes_(processes),
      send_(std::move(send)),
      before_end_(std::move(before_end)) {}

Result<> Keeper::adopt() {
  auto found = processes_.adopt();
  if (!found) return std::move(found).error();
  ranks_ = std::move(*found);
  return {};
}

void Keeper::say_hello() {
  cluster::Hello hello = self_;
  for (const auto& [key, status] : ranks_) hello.ranks.push_back({key.job, key.attempt, key.rank, status});
  send_(hello);
}

void Keeper::heartbeat() {
  look_at_sentences();
  send_(wire::Heartbeat{processes_.kept()});
}

void Keeper::look_at_sentences() {
  for (auto& [key, status] : ranks_) {
    if (status.state != RankState::started) continue;
    std::string said = processes_.said(key);
    const Instant saved_at = processes_.saved_at(key);
    if (said == status.detail && saved_at == status.saved_at) continue;
    status.detail = std::move(said);
    status.saved_at = saved_at;
    report(key);
  }
}

// Which of its ranks are new decides: a rank that is known is only reported again.
void Keeper::on(const wire::StartRanks& start) {
  wire::StartRanks fresh = start;
  fresh.ranks.clear();
  for (const wire::StartRank& rank : start.ranks) {
    const RankKey key{start.job, start.attempt, rank.rank};
    if (ranks_.contains(key)) {
      report(key);
    } else {
      fresh.ranks.push_back(rank);
    }
  }
  if (fresh.ranks.empty()) return;
  if (fresh.sync.empty()) {
    for (const wire::StartRank& rank : fresh.ranks) this->start(fresh, rank, fresh.workdir);
    return;
  }
  for (const wire::StartRank& rank : fresh.ranks) ranks_[{start.job, start.attempt, rank.rank}] = {};
  const auto [waiting, added] = preparing_.try_emplace(Attempt(start.job, start.attempt), fresh);
  if (added) return processes_.prepare(fresh);
  auto& ranks = waiting->second.ranks;
  ranks.insert(ranks.end(), fresh.ranks.begin(), fresh.ranks.end());
}

void Keeper::prepared(cluster::JobId job, std::int32_t attempt, const Result<std::string>& folder) {
  const auto waiting = preparing_.extract(Attempt(job, attempt));
  if (waiting.empty()) return;
  const wire::StartRanks& ready = waiting.mapped();
  for (const wire::StartRank& rank : ready.ranks) {
    const RankKey key{job, attempt, rank.rank};
    const auto known = ranks_.find(key);
    // It was ended while it waited.
    if (known == ranks_.end() || known->second.state != RankState::assigned) continue;
    if (folder) {
      start(ready, rank, *folder);
    } else {
      fail(key, folder.error().text());
    }
  }
  release_if_unused(job, attempt);
}

void Keeper::start(const wire::StartRanks& attempt, const wire::StartRank& rank, const std::string& workdir) {
  const RankKey key{attempt.job, attempt.attempt, rank.rank};
  if (auto started = processes_.start(attempt, rank, workdir); !started)
    return fail(key, started.error().text());
  ranks_[key].state = RankState::started;
  report(key);
}

void Keeper::fail(const RankKey& key, const std::string& why) {
  ranks_[key] = {RankState::exited, 126, "could not be started: " + why};
  report(key);
}

void Keeper::exited(const RankKey& key, const cluster::RankStatus& status) {
  const auto known = ranks_.find(key);
  if (known == ranks_.end() || known->second.state == RankState::exited) return;
  known->second = status;
  before_end_(key);
  report(key);
}

std::pair<Keeper::Ranks::iterator, Keeper::Ranks::iterator> Keeper::ranks_of(cluster::JobId job,
                                                                             std::int32_t attempt) {
  return {ranks_.lower_bound({job, attempt, std::numeric_limits<std::int32_t>::min()}),
          ranks_.upper_bound({job, attempt, std::numeric_limits<std::int32_t>::max()})};
}

void Keeper::on(const wire::EndRanks& end) {
  const cluster::RankStatus never_started{RankState::exited, 143, "it was ended before it started"};
  for (const std::int32_t rank : end.ranks) ranks_.try_emplace({end.job, end.attempt, rank}, never_started);
  const auto [begin, behind] = ranks_of(end.job, end.attempt);
  for (auto at = begin; at != behind; ++at) {
    if (at->second.state == RankState::assigned) at->second = never_started;
    if (at->second.state == RankState::exited) {
      report(at->first);
    } else {
      processes_.end(at->first);
    }
  }
}

void Keeper::on(const wire::ForgetRanks& forget) {
  auto [at, behind] = ranks_of(forget.job, forget.attempt);
  while (at != behind) {
    if (at->second.state == RankState::exited) {
      processes_.forget(at->first);
      at = ranks_.erase(at);
    } else {
      ++at;
    }
  }
  release_if_unused(forget.job, forget.attempt);
  if (forget.job_ended) processes_.job_ended(forget.job);
}

void Keeper::release_if_unused(cluster::JobId job, std::int32_t attempt) {
  const auto [begin, behind] = ranks_of(job, attempt);
  if (begin == behind && !preparing_.contains(Attempt(job, attempt))) processes_.release(job, attempt);
}

void Keeper::report(const RankKey& key) {
  send_(cluster::RankReport{key.job, key.attempt, key.rank, ranks_.at(key)});
}

bool Keeper::running(const RankKey& key) const {
  const auto known = ranks_.find(key);
  return known != ranks_.end() && known->second.state != RankState::exited;
}

}  // namespace tutti::keeper
