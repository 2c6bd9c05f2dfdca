#include "node/keeper/keeper.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/text.hpp"

namespace tutti::keeper {
namespace {

constexpr std::size_t hello_details_bytes_max = std::size_t{4} << 20;  // of all ranks together

cluster::RankStatus never_started() {
  cluster::RankStatus status{cluster::RankState::exited, 143, "it was ended before it started"};
  status.told = cluster::Told::yes;
  status.by_signal = true;
  return status;
}

}  // namespace

using cluster::RankState;

Keeper::Keeper(cluster::Hello self, Processes& processes, Send send)
    : self_(std::move(self)), processes_(processes), send_(std::move(send)) {}

Result<> Keeper::adopt() {
  auto found = processes_.adopt();
  if (!found) return std::move(found).error();
  ranks_ = std::move(*found);
  return {};
}

void Keeper::say_hello() {
  cluster::Hello hello = self_;
  // However many have ended with much to tell: a Hello that is too large would be refused, and so would the
  // next.
  const std::size_t detail_bytes = hello_details_bytes_max / std::max<std::size_t>(ranks_.size(), 1);
  for (const auto& [key, status] : ranks_) {
    hello.ranks.push_back(report_of(key, status));
    std::string& detail = hello.ranks.back().status.detail;
    detail.resize(cut_utf8(detail, detail_bytes).size());
  }
  hello.ports = processes_.free_ports();
  send_(hello);
}

void Keeper::introduce(const std::string& identity, const std::string& machine,
                       const Membership& membership) {
  self_.identity = identity;
  self_.machine = machine;
  self_.cluster = membership.cluster;
  self_.jobs_seen = membership.jobs_seen;
}

void Keeper::has(const cluster::Inventory& inventory) {
  if (inventory == self_.inventory) return;
  self_.inventory = inventory;
  say_hello();
}

// ---- which cluster it is of

// Numbers of jobs mean nothing in another cluster: what runs for the old one is ended before anything of the
// new one may start.
void Keeper::on(const wire::Welcome& welcome) {
  if (welcome.cluster.empty()) return;
  if (welcome.cluster == self_.cluster && !going_aside_) return next_cluster_.clear();
  if (self_.cluster.empty()) {
    self_.cluster = welcome.cluster;
    return processes_.remember({self_.cluster, self_.jobs_seen});
  }
  next_cluster_ = welcome.cluster;
  for (auto& [key, status] : ranks_) end(key, status, false);
  for (const auto& [attempt, start] : preparing_) processes_.stop_preparing(attempt.first, attempt.second);
  leave_old_cluster();
}

void Keeper::leave_old_cluster() {
  if (next_cluster_.empty() || going_aside_) return;
  const bool all_ended = std::all_of(ranks_.begin(), ranks_.end(),
                                     [](const auto& rank) { return rank.second.state == RankState::exited; });
  if (!all_ended || !preparing_.empty()) return;
  going_aside_ = true;
  processes_.put_aside(self_.cluster);
}

// What failed is tried again with the next heartbeat.
void Keeper::went_aside(const Result<>& outcome) {
  if (!std::exchange(going_aside_, false) || !outcome) return;
  const std::string cluster = std::exchange(next_cluster_, {});
  if (cluster != self_.cluster) {
    std::set<Attempt> left;
    for (const auto& [key, status] : std::exchange(ranks_, {})) left.insert({key.job, key.attempt});
    for (const auto& [job, attempt] : left) processes_.release(job, attempt);
    self_.cluster = cluster;
    self_.jobs_seen = self_.jobs_saved = 0;
    processes_.remember({self_.cluster, self_.jobs_seen});
  }
  say_hello();
}

void Keeper::note_job(cluster::JobId job) {
  if (job.number() <= self_.jobs_seen) return;
  self_.jobs_seen = job.number();
  processes_.remember({self_.cluster, self_.jobs_seen});
}

// Not noted as seen: what is on a disk that others write is no word of this node's.
void Keeper::saved(const std::string& cluster, std::uint64_t job) {
  if (cluster != self_.cluster || job <= std::max(self_.jobs_seen, self_.jobs_saved)) return;
  self_.jobs_saved = job;
  say_hello();
}

// ---- what the controller asks

void Keeper::heartbeat() {
  leave_old_cluster();
  send_(wire::Heartbeat{self_.illness, 0, processes_.kept()});
  std::vector<RankKey> running;
  for (const auto& [key, status] : ranks_) {
    if (status.state == RankState::started) running.push_back(key);
  }
  if (!running.empty()) processes_.look(running);
}

void Keeper::seen(const RankKey& key, Sight sight) {
  const auto known = ranks_.find(key);
  if (known == ranks_.end() || known->second.state != RankState::started) return;
  auto& status = known->second;
  if (sight.said == status.detail && sight.saved_at == status.saved_at) return;
  status.detail = std::move(sight.said);
  status.saved_at = sight.saved_at;
  report(key);
}

// Which of its ranks are new decides: a rank that is known is only reported again.
void Keeper::on(const wire::StartRanks& start) {
  if (!next_cluster_.empty()) return;
  note_job(start.job);
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
  const Attempt attempt(start.job, start.attempt);
  if (fresh.sync.empty() && !preparing_.contains(attempt) && processes_.has_room(fresh))
    return this->start(fresh, fresh.workdir);
  for (const wire::StartRank& rank : fresh.ranks) ranks_[{start.job, start.attempt, rank.rank}] = {};
  const auto [waiting, added] = preparing_.try_emplace(attempt, fresh);
  if (added) return processes_.prepare(fresh);
  auto& ranks = waiting->second.ranks;
  ranks.insert(ranks.end(), fresh.ranks.begin(), fresh.ranks.end());
}

void Keeper::prepared(cluster::JobId job, std::int32_t attempt, const Result<std::string>& folder,
                      Hindrance hindrance) {
  const auto waiting = preparing_.extract(Attempt(job, attempt));
  if (waiting.empty()) return;
  wire::StartRanks ready = std::move(waiting.mapped());
  // Some were ended while they waited.
  std::erase_if(ready.ranks, [&](const wire::StartRank& rank) {
    const auto known = ranks_.find({job, attempt, rank.rank});
    return known == ranks_.end() || known->second.state != RankState::assigned;
  });
  if (folder) {
    start(ready, *folder);
  } else {
    for (const wire::StartRank& rank : ready.ranks)
      fail({job, attempt, rank.rank}, folder.error(), hindrance);
  }
  release_if_unused(job, attempt);
  leave_old_cluster();
}

void Keeper::start(wire::StartRanks attempt, const std::string& workdir) {
  if (attempt.ranks.empty()) return;
  const bool leads = std::any_of(attempt.ranks.begin(), attempt.ranks.end(),
                                 [](const wire::StartRank& rank) { return rank.rank == 0; });
  if (leads && attempt.master_port != 0) {
    const auto taken = processes_.take_port(attempt);
    send_(wire::FreePorts{processes_.free_ports()});
    if (!taken) {
      for (const wire::StartRank& rank : attempt.ranks)
        fail({attempt.job, attempt.attempt, rank.rank}, taken.error(), Hindrance::passing);
      return;
    }
    if (*taken != attempt.master_port)
      std::replace(attempt.env.begin(), attempt.env.end(),
                   "MASTER_PORT=" + std::to_string(attempt.master_port),
                   "MASTER_PORT=" + std::to_string(*taken));
  }
  for (const wire::StartRank& rank : attempt.ranks) {
    const RankKey key{attempt.job, attempt.attempt, rank.rank};
    ranks_[key] = {};
    starting_[key] = Wanted::start;
  }
  processes_.start(attempt, workdir);
}

// A rank that was to end meanwhile is told as ended only now: until here it could still have come to run.
void Keeper::started(const RankKey& key, const Result<>& outcome) {
  const auto start = starting_.extract(key);
  if (start.empty()) return;
  const bool unwanted = start.mapped() != Wanted::start;
  cluster::RankStatus& status = ranks_.at(key);
  if (outcome) {
    status.state = RankState::started;
    report(key);
    if (unwanted) processes_.end(key, start.mapped() == Wanted::end_at_once);
    return;
  }
  if (unwanted) {
    status = never_started();
    report(key);
  } else if (outcome.error().code() == ErrorCode::unknown) {
    give_back(key, outcome.error().text());
  } else {
    fail(key, outcome.error());
  }
  leave_old_cluster();
}

// What is wrong with the request would be wrong on every node.
void Keeper::fail(const RankKey& key, const Error& why, Hindrance hindrance) {
  cluster::RankStatus& status = ranks_[key];
  status = {RankState::exited, 126, "could not be started: " + why.text()};
  status.node_fault = why.code() != ErrorCode::invalid;
  status.no_room = status.node_fault && hindrance == Hindrance::job;
  status.blameless = status.node_fault && hindrance == Hindrance::passing;
  report(key);
}

// Nothing was lost and nobody is to blame: the next attempt may run here.
void Keeper::give_back(const RankKey& key, const std::string& why) {
  cluster::RankStatus& status = ranks_[key];
  status = {RankState::exited, 126, why};
  status.node_fault = status.blameless = true;
  report(key);
}

void Keeper::exited(const RankKey& key, const cluster::RankStatus& status) {
  const auto known = ranks_.find(key);
  if (known == ranks_.end() || known->second.state == RankState::exited) return;
  starting_.erase(key);
  known->second = status;
  report(key);
  leave_old_cluster();
}

std::pair<Keeper::Ranks::iterator, Keeper::Ranks::iterator> Keeper::ranks_of(cluster::JobId job,
                                                                             std::int32_t attempt) {
  return {ranks_.lower_bound({job, attempt, std::numeric_limits<std::int32_t>::min()}),
          ranks_.upper_bound({job, attempt, std::numeric_limits<std::int32_t>::max()})};
}

void Keeper::on(const wire::EndRanks& end) {
  // Those that it names, and no others: a thousand orders of one rank each are not a thousand times all of
  // them.
  for (const std::int32_t rank : end.ranks) {
    const auto at = ranks_.try_emplace({end.job, end.attempt, rank}, never_started()).first;
    this->end(at->first, at->second, end.at_once);
    if (at->second.state == RankState::exited) report(at->first);
  }
  stop_preparing_if_unwanted(end.job, end.attempt);
}

void Keeper::end(const RankKey& key, cluster::RankStatus& status, bool at_once) {
  if (const auto start = starting_.find(key); start != starting_.end()) {
    start->second = std::max(start->second, at_once ? Wanted::end_at_once : Wanted::end);
    processes_.end(key, at_once);
  } else if (status.state == RankState::assigned) {
    status = never_started();
  } else if (status.state == RankState::started) {
    processes_.end(key, at_once);
  }
}

void Keeper::stop_preparing_if_unwanted(cluster::JobId job, std::int32_t attempt) {
  const auto waiting = preparing_.find(Attempt(job, attempt));
  if (waiting == preparing_.end()) return;
  const auto& ranks = waiting->second.ranks;
  const bool wanted = std::any_of(ranks.begin(), ranks.end(), [&](const wire::StartRank& rank) {
    const auto known = ranks_.find({job, attempt, rank.rank});
    return known != ranks_.end() && known->second.state == RankState::assigned;
  });
  if (!wanted) processes_.stop_preparing(job, attempt);
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

cluster::RankReport Keeper::report_of(const RankKey& key, const cluster::RankStatus& status) const {
  const bool ended = status.state == RankState::exited;
  const bool runs = status.state == RankState::started;
  return {key.job,
          key.attempt,
          key.rank,
          status,
          ended ? processes_.ended_ago(key) : Duration::zero(),
          runs ? processes_.ran(key) : Duration::zero()};
}

void Keeper::report(const RankKey& key) { send_(wire::RankReports{{report_of(key, ranks_.at(key))}}); }

bool Keeper::running(const RankKey& key) const {
  const auto known = ranks_.find(key);
  return known != ranks_.end() && known->second.state != RankState::exited;
}

}  // namespace tutti::keeper
