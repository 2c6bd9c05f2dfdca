#include "lab/sim/checks.hpp"

#include <algorithm>

#include "control/audit/line.hpp"
#include "control/wire/objects.hpp"

namespace tutti::sim {
namespace {

using cluster::JobState;

constexpr Duration overrun_max = 30s;

// The reason of a job that waits is told anew by each pass of the scheduler, and not stored.
std::string durable(cluster::Job job) {
  if (!job.finished() && !job.placed()) job.reason.clear();
  return wire::encode(job) + wire::encode_asked(job.spec);
}

}  // namespace

void Checks::violate(const std::string& what) {
  if (violation_.empty()) violation_ = what;
}

// ---- what really happens

void Checks::process_started(const std::string& node, std::uint64_t disk, const RankKey& key) {
  const std::string rank = "rank " + key.text() + " on node " + node;
  if (!started_.emplace(disk, key).second) violate(rank + " was started twice");
  ever_started_.insert(key);
  const auto placed = placed_.find({key.job, key.attempt});
  const auto at = static_cast<std::size_t>(key.rank);
  if (placed == placed_.end() || at >= placed->second.places.size())
    return violate(rank + " was started, and no such start was stored");
  const cluster::RankPlace& place = placed->second.places[at];
  if (place.node != node) violate(rank + " was started, and its place is node " + place.node);
  check_other_attempts(key);
  running_[key] = node;
  check_devices(node, key, place);
}

void Checks::check_devices(const std::string& node, const RankKey& key, const cluster::RankPlace& place) {
  for (const auto& device : place.devices) {
    std::int32_t& used = shares_[{node, device.device}];
    used += device.share;
    if (used > sched::whole_share) {
      violate("device " + std::to_string(device.device) + " of node " + node + " was given to rank " +
              key.text() + " while other ranks still used it");
    }
  }
}

// Two attempts of a job run at a time only while the older one's node is out of reach: then nobody can end
// it.
void Checks::check_other_attempts(const RankKey& key) {
  for (auto at = running_.lower_bound({key.job, 0, 0}); at != running_.end() && at->first.job == key.job;
       ++at) {
    if (at->first.attempt == key.attempt) continue;
    const RankKey& older = at->first.attempt < key.attempt ? at->first : key;
    const Placed& placed = placed_.at({older.job, older.attempt});
    const auto lost = lost_at_.find(placed.places[static_cast<std::size_t>(older.rank)].node);
    if (lost != lost_at_.end() && lost->second >= placed.since) continue;
    violate("ranks " + at->first.text() + " and " + key.text() + " run at the same time");
  }
}

void Checks::process_ended(Duration now, const RankKey& key, std::optional<std::int32_t> exit_code) {
  if (exit_code) exit_codes_[key] = *exit_code;
  if (exit_code) exited_at_[key] = now;
  const auto running = running_.find(key);
  if (running == running_.end()) return;
  const Placed& placed = placed_.at({key.job, key.attempt});
  for (const auto& device : placed.places[static_cast<std::size_t>(key.rank)].devices)
    shares_[{running->second, device.device}] -= device.share;
  running_.erase(running);
}

void Checks::disk_lost(const std::string& node) {
  std::erase_if(exited_at_, [&](const auto& exited) {
    const RankKey& key = exited.first;
    return placed_.at({key.job, key.attempt}).places[static_cast<std::size_t>(key.rank)].node == node;
  });
}

// While other things fail too, a loss may not be seen as one.
void Checks::node_killed(cluster::JobId job) {
  if (!calm_since_) return;
  if (++killed_nodes_[job] > cluster::deadly_nodes_max)
    violate("job " + job.text() + " has killed " + std::to_string(killed_nodes_[job]) +
            " nodes, and is not stopped");
}

void Checks::acknowledged(const std::vector<cluster::JobId>& jobs) {
  acknowledged_.insert(jobs.begin(), jobs.end());
}

// ---- what the controller believes

void Checks::turned(Duration now, const cluster::State& state) {
  if (auto held = cluster::invariants(state); !held) violate(held.error().text());
  note_lost(now, state);
  for (const cluster::JobId id : acknowledged_) {
    // What was seen to end may be kept no longer.
    if (!state.jobs.contains(id) && !finished_.contains(id))
      violate("job " + id.text() + " was acknowledged and is forgotten");
  }
  for (const auto& [id, job] : state.jobs) check_job(now, job);
  for (const auto& [name, service] : state.services) check_service(state, service);
}

// Whatever is late, lost or comes twice: of the canary there is never more than its share asks for, and of no
// version more than is wanted.
void Checks::check_service(const cluster::State& state, const cluster::Service& service) {
  std::map<std::int32_t, std::int32_t> there;
  for (const auto& [id, replica] : state.fleets.all.at(service.name).replicas) {
    const cluster::Job& job = state.jobs.at(id);
    const bool leaves = job.ending == cluster::EndCause::cancelled || job.ending == cluster::EndCause::killed;
    if (!leaves) ++there[replica.version];
  }
  // What has just changed is tended in the same turn, or, where there is much, soon.
  if (state.fleets.due.contains(service.name)) return;
  const std::int32_t wanted = std::max(service.wanted, service.next ? 1 : 0);
  const std::int32_t serving = there[service.serving.number];
  const std::int32_t next = service.next ? there[service.next->number] : 0;
  if (service.canary_share > 0 && next > cluster::canary_replicas(wanted, service.canary_share))
    violate("service " + service.name + " has " + std::to_string(next) + " replicas of its canary, for " +
            std::to_string(service.canary_share) + " of 1000 requests");
  if (serving > wanted) violate("service " + service.name + " has more replicas than it wants");
  if (service.next && service.canary_share == 0 && next > wanted)
    violate("service " + service.name + " has more replicas of its next version than it wants");
}

void Checks::note_lost(Duration now, const cluster::State& state) {
  for (const auto& [name, node] : state.nodes) {
    if (node.lost) lost_at_[name] = now;
  }
}

void Checks::stored(Duration now, const store::Contents& contents) {
  cluster::State state;
  for (const auto& [key, bytes] : contents.objects) {
    if (auto decoded = wire::decode_into(state, key, bytes); !decoded)
      return violate("what was stored cannot be read: " + decoded.error().text());
  }
  note_lost(now, state);
  // What has ended may be forgotten by the first turn that works again.
  for (const auto& [id, job] : state.jobs) check_finished(job);
}

void Checks::check_job(Duration now, const cluster::Job& job) {
  std::int32_t& attempt = attempts_[job.id];
  if (job.attempt < attempt) violate("job " + job.id.text() + " went back to an older attempt");
  attempt = job.attempt;
  if (job.placed()) {
    const auto [placed, added] = placed_.try_emplace({job.id, job.attempt}, Placed{now, job.places});
    if (!added && placed->second.places != job.places)
      violate("an attempt of job " + job.id.text() + " was moved");
  }
  if (job.state == JobState::running) check_running(job);
  if (job.state == JobState::running) check_overrun(now, job);
  if (job.state == JobState::failed && !finished_.contains(job.id)) check_time_limit(job);
  check_finished(job);
}

void Checks::check_running(const cluster::Job& job) {
  for (std::int32_t rank = 0; rank < static_cast<std::int32_t>(job.places.size()); ++rank) {
    const RankKey key{job.id, job.attempt, rank};
    const bool failed_to_start =
        job.ranks[static_cast<std::size_t>(rank)].state == cluster::RankState::exited;
    if (!failed_to_start && !ever_started_.contains(key))
      violate("job " + job.id.text() + " runs without its rank " + key.text());
  }
}

void Checks::check_finished(const cluster::Job& job) {
  const auto known = finished_.find(job.id);
  if (known != finished_.end()) {
    if (known->second != durable(job)) violate("job " + job.id.text() + " was finished and has changed");
    return;
  }
  if (!job.finished()) return;
  finished_.emplace(job.id, durable(job));
  if (job.state == JobState::failed && job.reason.find("could not be started: the disk") != std::string::npos)
    violate("job " + job.id.text() + " failed because a node could not start it");
  if (job.state == JobState::succeeded) check_success(job);
}

void Checks::check_success(const cluster::Job& job) {
  for (std::int32_t rank = 0; rank < static_cast<std::int32_t>(job.places.size()); ++rank) {
    const RankKey key{job.id, job.attempt, rank};
    const auto code = exit_codes_.find(key);
    if (code == exit_codes_.end() || code->second != 0)
      violate("job " + job.id.text() + " succeeded, and its rank " + key.text() + " did not");
  }
}

// Whoever was away: what had ended well a lease before its limit has not run past it.
void Checks::check_time_limit(const cluster::Job& job) {
  if (!job.reason.starts_with("ran past its time limit")) return;
  const auto placed = placed_.find({job.id, job.attempt});
  if (placed == placed_.end()) return;
  if (rebooted_at_ >= placed->second.since) return;
  const Duration in_time = placed->second.since + job.spec.time_limit - cluster::lease;
  for (std::int32_t rank = 0; rank < static_cast<std::int32_t>(job.places.size()); ++rank) {
    const RankKey key{job.id, job.attempt, rank};
    const auto code = exit_codes_.find(key);
    if (code == exit_codes_.end() || code->second != 0) return;
    const auto exited = exited_at_.find(key);
    if (exited == exited_at_.end() || exited->second > in_time) return;
  }
  violate("job " + job.id.text() + " failed by its time limit, and all of its ranks had succeeded before");
}

// However the controller's clock was set. Nodes that can be heard say soon that it still runs.
void Checks::check_overrun(Duration now, const cluster::Job& job) {
  if (!calm_since_ || job.spec.time_limit == Duration::zero() || job.ending != cluster::EndCause::none)
    return;
  const auto placed = placed_.find({job.id, job.attempt});
  if (placed == placed_.end() || rebooted_at_ >= placed->second.since) return;
  if (now > std::max(placed->second.since + job.spec.time_limit, *calm_since_) + overrun_max)
    violate("job " + job.id.text() + " runs on past its time limit of " +
            format_duration(job.spec.time_limit));
}

void Checks::same(const cluster::State& state, const store::Contents& contents) {
  cluster::State stored;
  for (const auto& [key, bytes] : contents.objects) {
    if (auto decoded = wire::decode_into(stored, key, bytes); !decoded)
      return violate("what was stored cannot be read: " + decoded.error().text());
  }
  if (stored.jobs.size() != state.jobs.size() || stored.nodes.size() != state.nodes.size())
    return violate("the store and the controller know different jobs or nodes");
  for (const auto& [id, job] : state.jobs) {
    if (state.noted.contains(id)) continue;  // what its ranks said last is stored a little later
    const auto found = stored.jobs.find(id);
    if (found == stored.jobs.end() || durable(found->second) != durable(job))
      return violate("job " + id.text() + " in memory is not what is stored");
  }
  for (const auto& [name, node] : state.nodes) {
    const auto found = stored.nodes.find(name);
    if (found == stored.nodes.end() || wire::encode(found->second) != wire::encode(node))
      return violate("node " + name + " in memory is not what is stored");
  }
  if (stored.secrets != state.secrets || stored.secret_key != state.secret_key)
    return violate("the secrets in memory are not what is stored");
  if (stored.services != state.services) violate("the services in memory are not what is stored");
  if (stored.next_job != state.next_job) violate("the store would give out an id again");
  if (stored.audit != state.audit) violate("the audit log in memory is not what is stored");
  check_audit(stored.audit);
}

// Each line follows those that were seen before, whatever has crashed meanwhile.
void Checks::check_audit(const cluster::AuditLog& log) {
  for (const auto& [first, lines] : log.lines) {
    std::string_view rest = lines;
    while (!rest.empty()) {
      const std::string_view line = rest.substr(0, rest.find('\n') + 1);
      rest.remove_prefix(line.size());
      const auto number = audit::check_line(line, std::nullopt);
      if (number && number->last <= audit_.last) continue;
      auto head = audit::check_line(line, audit_);
      if (!head) return violate("the audit log is broken: " + head.error().text());
      audit_ = *std::move(head);
    }
  }
}

std::string Checks::unfinished(const cluster::State& state) const {
  for (const auto& [id, job] : state.jobs) {
    if (!job.finished())
      return "job " + id.text() + " is " + std::string(cluster::name_of(job.state)) +
             (job.reason.empty() ? "" : " (" + job.reason + ")");
  }
  for (const auto& [name, node] : state.nodes) {
    const auto current = cluster::node_state(state, node);
    if (current != cluster::NodeState::ready)
      return "node " + name + " is " + std::string(cluster::name_of(current));
  }
  if (!running_.empty())
    return "rank " + running_.begin()->first.text() + " still runs on node " + running_.begin()->second;
  return "";
}

}  // namespace tutti::sim
