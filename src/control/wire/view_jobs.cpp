#include <algorithm>

#include "base/text.hpp"
#include "base/visible.hpp"
#include "control/wire/convert.hpp"
#include "control/wire/json.hpp"
#include "control/wire/views.hpp"

namespace tutti::wire {
namespace {

std::string_view name_of(cluster::RankState state) {
  switch (state) {
    case cluster::RankState::assigned:
      return "assigned";
    case cluster::RankState::started:
      return "running";
    case cluster::RankState::exited:
      return "ended";
  }
  return "";
}

void fill_places(const cluster::Job& job, proto::JobView& view) {
  proto::JobDevices* entry = nullptr;  // ranks of one node are neighbours
  for (const auto& place : job.places) {
    if (entry == nullptr || entry->node() != place.node) {
      view.add_nodes(place.node);
      entry = view.add_devices();
      entry->set_node(place.node);
    }
    for (const auto& device : place.devices) {
      const auto& known = entry->devices();
      if (std::find(known.begin(), known.end(), device.device) == known.end())
        entry->add_devices(device.device);
    }
  }
}

void fill_detail(const cluster::Job& job, proto::JobDetail& view) {
  add_strings(job.spec.command, *view.mutable_command());
  view.set_workdir(job.spec.workdir);
  add_strings(job.spec.secrets, *view.mutable_secrets());
  view.set_grace_s(in_seconds(job.spec.grace));
  for (std::size_t rank = 0; rank < job.ranks.size(); ++rank) {
    auto* added = view.add_rank_states();
    added->set_rank(static_cast<std::int32_t>(rank));
    added->set_node(job.places[rank].node);
    const cluster::RankStatus& status = job.ranks[rank];
    // Nobody has seen its end.
    const bool lost = status.state == cluster::RankState::exited && status.vanished;
    added->set_state(lost ? "lost" : std::string(name_of(status.state)));
    added->set_exit_code(status.exit_code);
    added->set_detail(job.ranks[rank].detail);
    for (const auto& device : job.places[rank].devices) added->add_devices(device.device);
  }
}

// A lost node may have lost its agent alone.
void fill_strays(const cluster::State& state, const cluster::Job& job, proto::JobDetail& view) {
  for (const auto& [name, node] : state.nodes) {
    if (!node.lost) continue;
    const auto first = node.strays.lower_bound({.job = job.id, .attempt = 0, .rank = 0});
    if (first != node.strays.end() && first->job == job.id) view.add_may_run_on(name);
  }
}

// Its ranks have been told to end, and have their grace period.
bool is_ending(const cluster::Job& job) {
  return job.ending != cluster::EndCause::none && job.placed() && !job.finished();
}

void fill_job(const cluster::State& state, const cluster::Job& job, proto::JobView& view) {
  view.set_id(job.id.text());
  view.set_name(job.spec.name);
  view.set_state(std::string(cluster::state_name(job)));
  view.set_queue(job.spec.queue);
  view.set_ranks(cluster::rank_count(job));
  view.set_ranks_wanted(job.spec.shape.ranks);
  view.set_gpus(gpus_of(cluster::gpu_share_total(job)));
  view.set_attempt(job.attempt);
  view.set_submitted_at(format_instant(job.submitted_at));
  if (job.started_at != Instant()) view.set_started_at(format_instant(job.started_at));
  if (job.finished_at != Instant()) view.set_finished_at(format_instant(job.finished_at));
  if (job.finished()) view.set_exit_code(job.exit_code);
  view.set_reason(cluster::reason_of(state, job));
  if (is_ending(job)) view.set_ending(true);
  view.set_user(job.spec.user);
  view.set_priority(job.spec.priority);
  if (job.spec.array) {
    view.set_array_id(job.spec.array->first.text());
    view.set_array_index(job.spec.array->index);
    view.set_array_count(job.spec.array->count);
  }
  fill_places(job, view);
}

// Of which at most so many are looked at for one page: the loop that answers has other things to do.
constexpr std::size_t page_looks_max = 20'000;

// Behind the states that a job can be in: its ranks are ending.
constexpr std::size_t ending_number = cluster::state_names.size();

std::size_t number_of(std::string_view state) {
  return static_cast<std::size_t>(std::ranges::find(cluster::state_names, state) -
                                  cluster::state_names.begin());
}

bool names_state(StateSet states, const cluster::Job& job) {
  return states[number_of(cluster::state_name(job))] || (states[ending_number] && is_ending(job));
}

Error no_state(std::string message) {
  std::string all;
  for (const std::string_view name : cluster::state_names) all += std::string(name) + ", ";
  return invalid(std::move(message))
      .within("state")
      .remedy("the states are " + all + "ending; several stand with commas between them");
}

// Or in one below it.
bool in_queue(const std::string& queue, const std::string& asked) {
  return queue.starts_with(asked) && (queue.size() == asked.size() || queue[asked.size()] == '/');
}

bool matches(const cluster::Job& job, const JobQuery& query) {
  return (query.queue.empty() || in_queue(job.spec.queue, query.queue)) && (query.all || !job.finished()) &&
         (query.states == StateSet() || names_state(query.states, job)) &&
         (query.user.empty() || job.spec.user == query.user) &&
         (query.name.empty() || job.spec.name.find(query.name) != std::string::npos);
}

}  // namespace

Result<StateSet> parse_states(std::string_view states) {
  StateSet named;
  if (states.empty()) return named;
  if (static_cast<std::size_t>(std::ranges::count(states, ',')) >= named.size())
    return no_state("it names more states than there are");
  for (const std::string_view state : split(states, ',')) {
    const std::size_t number = number_of(state);
    if (number == ending_number && state != "ending")
      return no_state("there is no state '" + visible_line(state.substr(0, 64)) + "'");
    named.set(number);
  }
  return named;
}

std::string job_json(const cluster::State& state, const cluster::Job& job, bool detailed) {
  proto::JobView view;
  fill_job(state, job, view);
  if (!detailed) return print(view);
  proto::JobDetail detail;
  fill_detail(job, detail);
  fill_strays(state, job, detail);
  return beside(print(view), print(detail));
}

Result<std::string> jobs_json(const cluster::State& state, const JobQuery& query) {
  proto::JobList list;
  cluster::JobId last;
  std::size_t looked = 0;
  const auto add = [&](const cluster::Job& job) {
    if (static_cast<std::size_t>(list.jobs_size()) == query.limit || looked == page_looks_max) return false;
    ++looked;
    last = job.id;
    if (matches(job, query) && (!query.shows || query.shows(job))) fill_job(state, job, *list.add_jobs());
    return true;
  };
  const cluster::JobId end(query.before == 0 ? ~std::uint64_t{0} : query.before);
  bool complete = true;
  if (query.array != 0) {
    const auto elements = cluster::array_elements(state, cluster::JobId(query.array));
    if (!elements) return elements.error();
    for (auto at = std::lower_bound(elements->begin(), elements->end(), end);
         complete && at != elements->begin();)
      complete = add(state.jobs.at(*--at));
  } else if (query.all) {
    for (auto at = state.jobs.lower_bound(end); complete && at != state.jobs.begin();)
      complete = add((--at)->second);
  } else {
    for (auto at = state.active.lower_bound(end); complete && at != state.active.begin();)
      complete = add(state.jobs.at(*--at));
  }
  if (!complete) list.set_next(last.text());
  return print(list);
}

}  // namespace tutti::wire
