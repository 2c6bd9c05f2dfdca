// What is over and is not kept any longer: by age and number, or because somebody says so.
#include "control/cluster/retention.hpp"

#include <algorithm>
#include <functional>
#include <iterator>
#include <vector>

#include "control/cluster/machine.hpp"

namespace tutti::cluster {
namespace {

bool is_over(Duration age, Duration age_max) { return age_max > Duration::zero() && age > age_max; }

std::size_t expired_per_step(std::size_t finished, std::size_t kept_max) {
  const std::size_t too_many = finished - std::min(finished, kept_max);
  return std::clamp(too_many / expired_share, expired_per_step_min, expired_per_step_max);
}

// Somebody waits for the job to end, and nothing that it writes while it ends may be lost.
bool ends_a_cancelled_job(const State& state, const RankReport& report) {
  if (report.status.state != RankState::exited) return false;
  const auto job = state.jobs.find(report.job);
  return job != state.jobs.end() &&
         (job->second.ending == EndCause::cancelled || job->second.ending == EndCause::killed);
}

std::size_t said_bytes_of(const Job& job) {
  std::size_t bytes = job.reason.size() + job.last_end.size() + job.held.size();
  for (const RankStatus& rank : job.ranks) bytes += rank.detail.size();
  return bytes;
}

// Its part, where it shares with the other elements of an array.
std::size_t asked_bytes_of(const JobSpec& spec) {
  const auto sharing = static_cast<std::size_t>(spec.array ? std::max(spec.array->count, 1) : 1);
  return own_bytes_of(spec) + shared_bytes_of(spec) / sharing;
}

// Which arrays have an element that has not ended. Each is looked at once.
class OpenArrays {
 public:
  explicit OpenArrays(const State& state) : state_(state) {}

  bool has(const Job& job) {
    if (!job.spec.array) return false;
    const JobId first = job.spec.array->first;
    const auto [entry, added] = known_.try_emplace(first, false);
    if (added) entry->second = goes_on(first);
    return entry->second;
  }

 private:
  bool goes_on(JobId first) const {
    for (auto at = state_.jobs.lower_bound(first); at != state_.jobs.end(); ++at) {
      const auto& part = at->second.spec.array;
      if (!part || part->first != first) return false;
      if (!at->second.finished()) return true;
    }
    return false;
  }

  const State& state_;
  std::map<JobId, bool> known_;
};

// Ids are counted on from the newest job, also after a restart: it stays until there is a newer one.
bool is_newest(const State& state, JobId id) { return state.jobs.rbegin()->first == id; }

// The finished jobs that go in one step.
class Expiry {
 public:
  Expiry(const State& state, Instant now, const Retention& keep, std::function<void(const Job&)> drop)
      : state_(state),
        now_(now),
        keep_(keep),
        drop_(std::move(drop)),
        most_(expired_per_step(state.ended.jobs(), keep.jobs_max)),
        bytes_before_(state.bytes.all()),
        open_(state) {}

  // There are more than are kept: who has the most of them goes first with his oldest, and nobody loses any
  // who has no more than an equal part of what is kept. So nobody can make the jobs of others forgotten.
  void beyond(std::size_t kept_max, const std::function<std::size_t()>& all,
              const std::function<std::size_t(const Ended::OfUser&)>& part_of) {
    if (all() <= kept_max || state_.ended.users().empty()) return;
    kept_elements_ = 0;
    const std::size_t equal_part = kept_max / state_.ended.users().size();
    std::vector<Candidate> heap;
    for (const auto& [name, user] : state_.ended.users())
      if (part_of(user) > equal_part) heap.push_back({part_of(user), &name, &user, user.entries.begin()});
    std::make_heap(heap.begin(), heap.end());
    while (!heap.empty() && all() > kept_max && !is_enough()) {
      std::pop_heap(heap.begin(), heap.end());
      Candidate& first = heap.back();
      const auto [ended_at, id] = *first.next++;
      const bool is_last = first.next == first.user->entries.end();
      const bool has_just_ended = now_ - ended_at < keep_.jobs_age_min;  // and so have all behind it
      if (!has_just_ended) drop_if_possible(id);
      if (is_last || has_just_ended || (first.part = part_of(*first.user)) <= equal_part) {
        heap.pop_back();
      } else {
        std::push_heap(heap.begin(), heap.end());
      }
    }
  }

  void by_age() {
    kept_elements_ = 0;
    const auto& entries = state_.ended.entries();
    for (auto at = entries.begin(); at != entries.end() && !is_enough();) {
      const auto [ended_at, id] = (at++)->first;
      if (now_ - ended_at < keep_.jobs_age_min || !is_over(now_ - ended_at, keep_.jobs_age_max)) break;
      drop_if_possible(id);
    }
  }

  std::size_t dropped() const { return dropped_; }

 private:
  struct Candidate {
    std::size_t part = 0;
    const std::string* name = nullptr;
    const Ended::OfUser* user = nullptr;
    std::set<Ended::Entry>::const_iterator next;

    bool operator<(const Candidate& other) const {
      return part != other.part ? part < other.part : *name < *other.name;
    }
  };

  bool is_enough() const {
    return dropped_ >= most_ || bytes_before_ - state_.bytes.all() > expired_bytes_per_step_max;
  }

  void drop_if_possible(JobId id) {
    const Job& job = state_.jobs.at(id);
    const Instant heard_at = state_.ended.entries().at({job.finished_at, id}).heard_at;
    // It ended while the controller or its node was away, and whoever waits for it has just been told.
    if (now_ - heard_at < keep_.jobs_age_min || is_newest(state_, id)) return;
    // Who waits for the array asks for the end of each of them.
    if (kept_elements_ < kept_elements_max && open_.has(job)) {
      ++kept_elements_;
      return;
    }
    drop_(job);
    ++dropped_;
  }

  const State& state_;
  const Instant now_;
  const Retention& keep_;
  const std::function<void(const Job&)> drop_;
  const std::size_t most_;
  const std::size_t bytes_before_;
  OpenArrays open_;
  std::size_t dropped_ = 0;
  std::size_t kept_elements_ = 0;
};

}  // namespace

bool Ended::add(const Job& job, Instant heard_at) {
  const Entry entry(job.finished_at, job.id);
  const auto [left, added] = entries_.try_emplace(entry);
  if (!added) return false;
  const std::size_t said_bytes = said_bytes_of(job);
  left->second = {heard_at, said_bytes, said_bytes + asked_bytes_of(job.spec)};
  said_bytes_ += said_bytes;
  ranks_ += job.places.size();
  OfUser& user = users_[job.spec.user];
  user.entries.insert(entry);
  user.ranks += job.places.size();
  user.bytes += left->second.bytes;
  return true;
}

void Ended::remove(const Job& job) {
  const auto entry = entries_.find({job.finished_at, job.id});
  if (entry == entries_.end()) return;
  said_bytes_ -= entry->second.said_bytes;
  ranks_ -= job.places.size();
  const auto user = users_.find(job.spec.user);
  user->second.ranks -= job.places.size();
  user->second.bytes -= entry->second.bytes;
  user->second.entries.erase(entry->first);
  if (user->second.entries.empty()) users_.erase(user);
  entries_.erase(entry);
}

void Ended::move(Duration by) {
  for (auto& [entry, left] : entries_) left.heard_at += by;
}

std::size_t Ended::of_user(const std::string& user) const {
  const auto known = users_.find(user);
  return known == users_.end() ? 0 : known->second.entries.size();
}

bool frees_room(const State& state, const Event& event) {
  if (const auto* reported = std::get_if<Reported>(&event))
    return std::any_of(reported->ranks.begin(), reported->ranks.end(),
                       [&](const RankReport& report) { return ends_a_cancelled_job(state, report); });
  // Nobody is to be let in any longer because a disk is full.
  if (const auto* person = std::get_if<SetPerson>(&event))
    return person->blocked.value_or(false) && !person->grants;
  return std::holds_alternative<RevokeToken>(event) || std::holds_alternative<RemovePerson>(event) ||
         std::holds_alternative<Cancel>(event) || std::holds_alternative<Drain>(event) ||
         std::holds_alternative<RemoveNode>(event) || std::holds_alternative<RemoveJobs>(event) ||
         std::holds_alternative<RevokeNode>(event) || std::holds_alternative<RevokeJoinToken>(event) ||
         std::holds_alternative<AuditShelved>(event) || std::holds_alternative<AuditFound>(event) ||
         std::holds_alternative<RemoveSecret>(event) || std::holds_alternative<StopService>(event);
}

void Machine::drop(const Job& job) {
  const JobId id = job.id;
  const QueueUser who(job.spec.queue, job.spec.user);
  if (job.served > 0 && (state_.past_use.size() < past_use_max || state_.past_use.contains(who))) {
    state_.past_use[who].add(job.served, job.finished_at);
    effects_.past_use.insert(who);
  }
  effects_.jobs.insert(id);
  effects_.shown.erase(id);
  effects_.asked.insert(asked_with(job));
  state_.ended.remove(job);
  state_.bytes.goes(job);
  state_.jobs.erase(id);
}

void Machine::drop(const std::vector<NodeName>& nodes) {
  if (nodes.empty()) return;
  for (const NodeName& name : nodes) {
    effects_.nodes.insert(name);
    state_.nodes.erase(name);
    state_.blame.forget(name);
  }
  state_.index.removed_node();
  Fabric left = only_between(*state_.fabric, node_names(state_));
  if (left.size() != state_.fabric->size()) {
    state_.fabric = std::make_shared<const Fabric>(std::move(left));
    effects_.fabric = true;
  }
  effects_.schedule = true;
}

std::size_t Machine::expire_jobs(const Retention& keep) {
  Expiry expiry(state_, now_, keep, [this](const Job& job) { drop(job); });
  const Ended& ended = state_.ended;
  expiry.beyond(
      keep.jobs_max, [&] { return ended.jobs(); },
      [](const Ended::OfUser& user) { return user.entries.size(); });
  expiry.beyond(
      keep.ranks_max, [&] { return ended.ranks(); }, [](const Ended::OfUser& user) { return user.ranks; });
  expiry.beyond(
      kept_bytes_max, [&] { return state_.bytes.finished() + ended.said_bytes(); },
      [](const Ended::OfUser& user) { return user.bytes; });
  expiry.by_age();
  return expiry.dropped();
}

// One that a person drained stays: it would take work again if it came back as a new one. Of the others those
// go that are too old, and the oldest of too many: whoever may join can do so under ever new names.
void Machine::expire_nodes(const Retention& keep, std::size_t nodes_max) {
  std::vector<std::pair<Instant, NodeName>> lost;
  for (const auto& [name, node] : state_.nodes) {
    if (node.lost && !node.draining && state_.index.jobs_on(name).empty())
      lost.emplace_back(node.lost_at, name);
  }
  std::sort(lost.begin(), lost.end());
  const std::size_t too_many = lost.size() - std::min(lost.size(), keep.lost_nodes_max);
  std::vector<NodeName> due;
  for (std::size_t at = 0; at < lost.size() && due.size() < nodes_max; ++at) {
    if (at >= too_many && !is_over(now_ - lost[at].first, keep.nodes_age_max)) break;
    due.push_back(std::move(lost[at].second));
  }
  drop(due);
}

// Users come and go for years: what those who are gone had is remembered until it weighs nothing.
void Machine::expire_use() {
  auto at = state_.past_use.upper_bound(state_.past_use_looked_at);
  for (std::size_t looked = 0; looked < users_looked_at_per_step_max && at != state_.past_use.end();
       ++looked) {
    state_.past_use_looked_at = at->first;
    const bool weighs = at->second.left(now_) >= use_forgotten_below;
    if (!weighs) effects_.past_use.insert(at->first);
    at = weighs ? std::next(at) : state_.past_use.erase(at);
  }
  if (at == state_.past_use.end()) state_.past_use_looked_at = {};
  state_.index.forget_use(now_, users_looked_at_per_step_max);
}

void Machine::on(const Expire& event) {
  state_.kept_jobs_max = event.keep.jobs_max;
  note_presence();
  const std::size_t dropped = expire_jobs(event.keep);
  expire_nodes(event.keep, expired_per_step_min - std::min(dropped, expired_per_step_min));
  if (!event.keep.forgets_use) return;
  expire_use();
  expire_tokens();
  expire_members();
}

void Machine::on(const RemoveNode& event) {
  const Node* node = find(event.node);
  if (node == nullptr)
    return fail(invalid("there is no node '" + event.node + "'").remedy("`tutti nodes` lists them"));
  if (!node->lost)
    return fail(invalid("node '" + event.node + "' is alive")
                    .remedy("drain it and end its agent; when it is lost it can be removed"));
  if (const auto& jobs = state_.index.jobs_on(event.node); !jobs.empty())
    return fail(invalid("node '" + event.node + "' has ranks of job " + jobs.begin()->text())
                    .remedy("wait until that gang has ended, or cancel it"));
  drop({node->name});
  forget_member(event.node);
}

// All of them or none; one that is gone already is no reason to keep the others.
void Machine::on(const RemoveJobs& event) {
  std::set<JobId> asked(event.jobs.begin(), event.jobs.end());
  std::erase_if(asked, [this](JobId id) { return find(id) == nullptr; });
  OpenArrays open(state_);
  for (const JobId id : asked) {
    const Job* job = find(id);
    if (!job->finished())
      return fail(invalid("job " + id.text() + " has not ended").remedy("cancel it first"));
    if (is_newest(state_, id))
      return fail(invalid("job " + id.text() + " is the newest")
                      .remedy("ids are counted on from it: it can be removed when there is a newer one"));
    if (open.has(*job))
      return fail(invalid("job " + id.text() + " is an element of array " + job->spec.array->first.text() +
                          ", which has not ended")
                      .remedy("wait for the array, or cancel it"));
  }
  for (const JobId id : asked) drop(state_.jobs.at(id));
  effects_.reply = std::vector<JobId>(asked.begin(), asked.end());
}

}  // namespace tutti::cluster
