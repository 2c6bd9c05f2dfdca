// Services get the replicas that they want: what is missing is started, what is too much ends, and a new
// version takes the place of the old one. A service is tended when something about it has changed or its time
// has come, so that a turn costs what has happened, and not what there is.
#include <algorithm>
#include <utility>

#include "base/text.hpp"
#include "control/cluster/machine.hpp"

namespace tutti::cluster {
namespace {

constexpr std::size_t end_bytes_max = 300;  // of why a replica ended

std::string replicas_text(std::int32_t count) {
  return std::to_string(count) + (count == 1 ? " replica" : " replicas");
}

// It is told to end, and nothing takes that back.
bool is_leaving(const Job& job) {
  return job.placed() && (job.ending == EndCause::cancelled || job.ending == EndCause::killed);
}

// The program's own end, and not that of its node or of somebody who wanted it so.
bool is_by_itself(EndCause cause) {
  switch (cause) {
    case EndCause::none:
    case EndCause::rank_failed:
    case EndCause::time_limit:
      return true;
    case EndCause::cancelled:
    case EndCause::killed:
    case EndCause::node_lost:
    case EndCause::drained:
    case EndCause::preempted:
    case EndCause::node_fault:
    case EndCause::stopped:
    case EndCause::withheld:
      return false;
  }
  return false;
}

// At the earliest of these times.
void wake_at(Fleet& fleet, Instant at) {
  if (at == Instant::max()) return;
  fleet.next_alarm = fleet.next_alarm == Instant() ? at : std::min(fleet.next_alarm, at);
}

bool is_in_time(Instant at, Instant now) { return at > now && at - now <= restart_pause_max; }

}  // namespace

// The replicas of one version, in the order of their ids.
struct Machine::Crew {
  std::vector<JobId> ready;
  std::vector<JobId> coming;    // start, or wait for room
  bool waits_for_room = false;  // one of these does
  std::int32_t leaving = 0;
  // Of the one that is for longest of those that were started since the last bad end.
  Instant ready_since = Instant::max();

  std::int32_t there() const { return static_cast<std::int32_t>(ready.size() + coming.size()); }
  std::int32_t answer() const { return static_cast<std::int32_t>(ready.size()); }
};

struct Machine::Crews {
  Crew serving;
  Crew next;
  std::vector<JobId> others;  // of versions that are given up
};

void Machine::on(const Tend&) {
  Fleets& fleets = state_.fleets;
  std::vector<ServiceName> names;
  // Where there are more than one step takes, all have their turn.
  auto at = fleets.due.upper_bound(fleets.tended);
  for (std::size_t left = std::min(fleets.due.size(), services_per_step_max); left > 0; --left) {
    if (at == fleets.due.end()) at = fleets.due.begin();
    names.push_back(*at++);
  }
  std::size_t replicas = 0;
  for (const ServiceName& name : names) {
    if (replicas >= replicas_per_step_max) return;
    fleets.tended = name;
    fleets.due.erase(name);
    if (Service* service = find_service(name)) replicas += tend(*service);
  }
}

// Answers how many replicas it has looked at.
std::size_t Machine::tend(Service& service) {
  Fleet& fleet = state_.fleets.all.at(service.name);
  Crews crews;
  for (const auto& [id, replica] : fleet.replicas) {
    const Job& job = state_.jobs.at(id);
    const bool is_next = service.next && replica.version == service.next->number;
    Crew& crew = is_next ? crews.next : crews.serving;
    if (is_leaving(job)) {
      ++crew.leaving;
    } else if (!is_next && replica.version != service.serving.number) {
      crews.others.push_back(id);
    } else if (replica.port != 0) {
      crew.ready.push_back(id);
      const Version& of = is_next ? *service.next : service.serving;
      if (replica.ready_since >= of.not_before)
        crew.ready_since = std::min(crew.ready_since, replica.ready_since);
    } else {
      crew.coming.push_back(id);
      crew.waits_for_room = crew.waits_for_room || (!job.placed() && !must_wait(state_, job));
    }
  }
  const std::size_t looked_at = fleet.replicas.size() + 1;
  fleet.next_alarm = {};
  forgive(service.serving, service, crews.serving);
  if (service.next) forgive(*service.next, service, crews.next);
  for (const JobId id : crews.others)
    dismiss(state_.jobs.at(id), "its version of the service " + service.name + " is not served any more");
  // Who its replicas are has changed with that: the next look sees them.
  if (!settle_next(service, fleet, crews)) {
    scale(service, fleet);
    const std::int32_t wanted = std::max(service.wanted, service.next ? 1 : 0);
    if (!service.next) {
      cut_to(crews.serving, wanted, "fewer replicas are wanted: " + service.last_change);
      bring_to(service, service.serving, fleet, crews.serving, wanted);
    } else if (service.canary_share > 0) {
      const std::int32_t canaries = canary_replicas(wanted, service.canary_share);
      cut_to(crews.serving, wanted, "fewer replicas are wanted: " + service.last_change);
      cut_to(crews.next, canaries, "fewer replicas of the canary are wanted");
      bring_to(service, service.serving, fleet, crews.serving, wanted);
      bring_to(service, *service.next, fleet, crews.next, canaries);
    } else {
      roll(service, fleet, crews);
    }
  }
  set_alarm(service, fleet);
  return looked_at;
}

// One has been ready for long enough: what comes after it counts from the beginning.
void Machine::forgive(Version& version, const Service& service, const Crew& crew) {
  if (version.bad_ends == 0 || crew.ready_since == Instant::max()) return;
  if (now_ - crew.ready_since < replica_stable) {
    wake_at(state_.fleets.all.at(service.name), crew.ready_since + replica_stable);
    return;
  }
  version.bad_ends = 0;
  version.not_before = {};
  version.last_end.clear();
  touch(service);
}

// What becomes of a new version; true if something has.
bool Machine::settle_next(Service& service, Fleet& fleet, const Crews& crews) {
  fleet.waits_for.clear();
  if (!service.next) return false;
  const Version& next = *service.next;
  if (next.bad_ends >= version_bad_ends_max) {
    give_up_next(service,
                 ": " + std::to_string(next.bad_ends) +
                     " of its replicas in a row ended by themselves, the last one: " + next.last_end);
    return true;
  }
  if (service.canary_share > 0) {
    const Judgement judgement =
        judge(fleet.seen[service.serving.number], fleet.seen[next.number], now_ - service.next_since);
    switch (judgement.verdict) {
      case Verdict::none:
        fleet.waits_for = "the canary " + judgement.why;
        if (now_ - service.next_since < canary_time_max) wake_at(fleet, service.next_since + canary_time_max);
        return false;
      case Verdict::promote:
        promote(service, ": " + judgement.why);
        return true;
      case Verdict::roll_back:
        give_up_next(service, ": " + judgement.why);
        return true;
    }
  }
  if (crews.serving.there() > 0 || crews.next.answer() < std::max(service.wanted, 1)) return false;
  const std::int32_t gone = service.serving.number;
  service.serving = *std::exchange(service.next, std::nullopt);
  fleet.seen.clear();
  fleet.no_room_since = {};
  std::erase_if(fleet.told, [gone](const auto& told) { return told.first.second == gone; });
  change(service, text_of(service.serving) + " has taken the place of version " + std::to_string(gone));
  touch(service);
  return true;
}

void Machine::scale(Service& service, Fleet& fleet) {
  const Bounds bounds{service.replicas_min, service.replicas_max, service.idle_time, service.target_ttft};
  const Scaling scaling = decide(demand_of(state_, fleet), bounds, service.wanted, now_, fleet.memory);
  if (scaling.wanted != service.wanted) {
    change(service, "from " + std::to_string(service.wanted) + " to " + replicas_text(scaling.wanted) +
                        (scaling.why.empty() ? "" : ": " + scaling.why));
    service.wanted = scaling.wanted;
    touch(service);
  }
  wake_at(fleet, decide_again_at(bounds, service.wanted, fleet.memory));
}

// One new replica at a time beside those that are wanted, and an old one goes for each that is ready.
void Machine::roll(Service& service, Fleet& fleet, Crews& crews) {
  const std::int32_t target = std::max(service.wanted, 1);
  make_room(service, fleet, crews, target);
  Crew& before = crews.serving;
  Crew& next = crews.next;
  cut_to(next, target, "fewer replicas are wanted: " + service.last_change);
  cut_to(before, std::max(target - next.answer(), 0),
         text_of(*service.next) + " of the service " + service.name + " takes its place");
  const std::int32_t most = std::min(target, std::max(next.there(), target + 1 - before.there()));
  bring_to(service, *service.next, fleet, next, most);
}

// A new replica that finds no room takes that of an old one: of one that is not needed for the least that are
// to answer, or of a single one where there is no other way.
void Machine::make_room(Service& service, Fleet& fleet, Crews& crews, std::int32_t target) {
  Crew& before = crews.serving;
  const bool waits = crews.next.waits_for_room && before.leaving == 0 && before.there() > 0;
  if (!waits) {
    fleet.no_room_since = {};
    return;
  }
  if (fleet.no_room_since == Instant()) fleet.no_room_since = now_;
  const Instant due = fleet.no_room_since + update_room_time;
  if (now_ < due) return wake_at(fleet, due);
  const std::int32_t answer = before.answer() + crews.next.answer() - (before.coming.empty() ? 1 : 0);
  const bool are_enough = answer >= std::max(service.replicas_min, 1);
  if (!are_enough && before.there() + crews.next.there() <= target) return;
  fleet.no_room_since = {};
  cut_to(before, before.there() - 1,
         text_of(*service.next) + " of the service " + service.name + " found no room beside it");
  change(service, text_of(*service.next) + " found no room for " + format_duration(update_room_time) +
                      ": a replica of " + text_of(service.serving) + " made way" +
                      (are_enough ? "" : ", and fewer answer than are to"));
  touch(service);
}

// Those that do not answer yet go first, and of those that do the newest: the older ones remember more.
void Machine::cut_to(Crew& crew, std::int32_t replicas, const std::string& why) {
  while (crew.there() > replicas) {
    std::vector<JobId>& from = crew.coming.empty() ? crew.ready : crew.coming;
    dismiss(state_.jobs.at(from.back()), why);
    from.pop_back();
    ++crew.leaving;
  }
}

void Machine::bring_to(Service& service, const Version& version, Fleet& fleet, const Crew& crew,
                       std::int32_t replicas) {
  std::int32_t missing = replicas - crew.there();
  if (missing <= 0) return;
  if (is_in_time(version.not_before, now_)) return wake_at(fleet, version.not_before);
  // After a bad end one is tried, and the others come when it is there.
  if (version.bad_ends > 0) missing = crew.coming.empty() ? 1 : 0;
  if (!fleet.trouble.empty() && is_in_time(fleet.tried_at + replica_tried_every, now_))
    return wake_at(fleet, fleet.tried_at + replica_tried_every);
  fleet.trouble.clear();
  JobSpec spec = version.replica;
  spec.service = ServicePart{service.name, version.number};
  const auto most = static_cast<std::int32_t>(replicas_started_per_step_max);
  for (std::int32_t started = 0; started < std::min(missing, most); ++started) {
    if (auto done = start_replica(spec); !done) {
      fleet.trouble = done.error().text();
      fleet.tried_at = now_;
      wake_at(fleet, now_ + replica_tried_every);
      return;
    }
  }
}

Result<> Machine::start_replica(const JobSpec& spec) {
  Submit submit;
  submit.specs.push_back(spec);
  if (auto admitted = admit(submit); !admitted) return admitted;
  Job job;
  job.id = JobId(state_.next_job++);
  job.spec = spec;
  job.submitted_at = job.queued_at = now_;
  job.reason = "waits for the scheduler";
  effects_.asked.insert(job.id);
  effects_.cluster = true;
  effects_.schedule = true;
  touch(job);
  state_.jobs.emplace(job.id, std::move(job));
  return {};
}

void Machine::dismiss(Job& job, const std::string& why) {
  if (job.finished() || is_leaving(job)) return;
  if (job.placed()) {
    cancel_placed(job, why);
  } else {
    finish(job, JobState::cancelled, why);
  }
}

// Of one that ends for good, before it does.
void Machine::note_replica_end(const Job& job, JobState state, const std::string& reason) {
  if (state == JobState::cancelled || !job.placed() || !is_by_itself(job.ending)) return;
  if (service_of(state_, job) == nullptr) return;
  Service& service = *find_service(job.spec.service->name);
  Version* version = nullptr;
  if (service.serving.number == job.spec.service->version) version = &service.serving;
  if (service.next && service.next->number == job.spec.service->version) version = &*service.next;
  if (version == nullptr) return;
  const Replica& replica = state_.fleets.all.at(service.name).replicas.at(job.id);
  const Duration ready_for = replica.port != 0 ? now_ - replica.ready_since : replica.was_ready_for;
  if (ready_for >= replica_stable) return;
  ++version->bad_ends;
  version->not_before = now_ + restart_pause(version->bad_ends + 1);
  version->last_end =
      reason.empty() ? "it ended, and nobody had asked it to" : std::string(cut_utf8(reason, end_bytes_max));
  touch(service);
}

// ---- when nothing happens

void Machine::set_alarm(const Service& service, Fleet& fleet) {
  if (fleet.alarm == fleet.next_alarm) return;
  auto& alarms = state_.fleets.alarms;
  alarms.erase({fleet.alarm, service.name});
  fleet.alarm = fleet.next_alarm;
  if (fleet.alarm != Instant()) alarms.emplace(fleet.alarm, service.name);
}

void Machine::sound_alarms() {
  auto& alarms = state_.fleets.alarms;
  while (!alarms.empty() && alarms.begin()->first <= now_) {
    const ServiceName name = alarms.begin()->second;
    alarms.erase(alarms.begin());
    state_.fleets.all.at(name).alarm = {};
    state_.fleets.due.insert(name);
  }
}

// ---- in words

std::string_view state_of(const State& state, const Service& service) {
  const Fleet& fleet = state.fleets.all.at(service.name);
  if (service.next) return service.canary_share > 0 ? "canary" : "updating";
  if (service.wanted == 0) return "asleep";
  const std::int32_t ready = ready_of(fleet);
  if (ready >= service.wanted) return "ready";
  return ready == 0 ? "starting" : "growing";
}

std::string reason_of(const State& state, const Service& service) {
  const Fleet& fleet = state.fleets.all.at(service.name);
  if (!fleet.trouble.empty()) return "no replica can be started: " + fleet.trouble;
  for (const Version* version : {service.next ? &*service.next : &service.serving, &service.serving}) {
    if (version->bad_ends == 0) continue;
    return std::to_string(version->bad_ends) + " of the replicas of " + text_of(*version) +
           " in a row ended by themselves, the next one starts after " + format_instant(version->not_before) +
           ": " + version->last_end;
  }
  for (const auto& [id, replica] : fleet.replicas) {
    if (replica.port != 0) continue;
    const Job& job = state.jobs.at(id);
    if (is_leaving(job)) continue;
    if (job.placed() && job.ending == EndCause::none)
      return "replica " + id.text() + " loads its model on node " + job.places.front().node;
    return "replica " + id.text() + ": " + reason_of(state, job);
  }
  if (!fleet.waits_for.empty()) return fleet.waits_for;
  if (service.wanted == 0 && !service.next) return "nobody asks: the first request wakes it";
  return "";
}

}  // namespace tutti::cluster
