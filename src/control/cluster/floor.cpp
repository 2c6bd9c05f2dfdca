#include "control/cluster/floor.hpp"

#include "control/cluster/model.hpp"

namespace tutti::cluster {
namespace {

constexpr std::size_t answers_kept_max = 65'536;

sched::NodeView as_if_empty(const Node& node) {
  sched::NodeView view{node.name, node.location,           {}, node.inventory.cpus, node.inventory.memory,
                       true,      node.inventory.watch_max};
  view.devices.reserve(node.inventory.devices.size());
  for (const Device& device : node.inventory.devices)
    view.devices.push_back(
        {device.model, device.memory, device.silent ? 0 : sched::whole_share, device.numa});
  return view;
}

void take_places(sched::Room& room, const Job& job, sched::JobView& view) {
  auto places = room.compact(*view.shape, job.places);
  TUTTI_CHECK(places.has_value());
  room.take(*view.shape, *places);
  view.places = std::move(*places);
}

}  // namespace

void Floor::changed(const Change& change, Habits& habits) {
  const Job& job = change.job;
  if (change.leaves(Phase::running)) {
    const auto view = running_.find(job.id);
    if (!stale_) free_.give(*view->second.shape, view->second.places);
    running_.erase(view);
  }
  if (change.after != Phase::running) return;
  sched::JobView& view = running_[job.id];
  if (change.enters(Phase::running)) {
    habits.fill(job, view);
    if (!stale_) take_places(free_, job, view);
  }
  view.submitted_at = job.submitted_at;
  view.queued_at = job.queued_at;
  view.started_at = job.started_at;
  view.saved_at = job.saved_at;
  view.ending = job.ending != EndCause::none;
  view.makes_way = job.ending == EndCause::preempted;
  view.ends_by = {};
  if (view.ending && job.told_at != Instant())
    view.ends_by = job.told_at + (job.ending == EndCause::killed ? Duration::zero() : job.spec.grace);
}

void Floor::changed(const Node& node) {
  if (stale_) return;
  if (const auto number = free_.find(node.name)) free_.set_open(*number, takes_work(node));
}

void Floor::changed(const Node& before, const Node& after) {
  if (before.name != after.name || before.inventory != after.inventory || before.location != after.location)
    stale_ = true;
  changed(after);
}

void Floor::removed_node() {
  stale_ = true;
  ++generation_;
}

void Floor::refresh(const State& state) {
  if (!stale_) return;
  std::vector<sched::NodeView> views;
  views.reserve(state.nodes.size());
  for (const auto& [name, node] : state.nodes) views.push_back(as_if_empty(node));
  full_ = sched::Room(views);
  ever_fits_.clear();
  free_ = full_;
  for (const auto& [name, node] : state.nodes) free_.set_open(*free_.find(name), takes_work(node));
  for (auto& [id, view] : running_) take_places(free_, state.jobs.at(id), view);
  ++generation_;
  stale_ = false;
}

const sched::Room& Floor::free(const State& state) {
  refresh(state);
  return free_;
}

const sched::Room& Floor::full(const State& state) {
  refresh(state);
  return full_;
}

bool Floor::ever_fits(const State& state, const sched::Shape& shape) {
  refresh(state);
  if (const auto known = ever_fits_.find(shape); known != ever_fits_.end()) return known->second;
  if (ever_fits_.size() == answers_kept_max) ever_fits_.clear();
  ++searches_;
  const bool fits = sched::place(full_, shape, sched::TightestNode()).has_value();
  ever_fits_.emplace(shape, fits);
  return fits;
}

Views& Floor::running(const State& state) {
  refresh(state);
  return running_;
}

Result<> Floor::check(const State& state, Floor fresh) const {
  if (!same_views(running_, fresh.running_)) return failed("the index of running jobs is wrong");
  if (stale_) return {};  // the rest is read anew before anybody asks
  fresh.refresh(state);
  for (const auto& [id, view] : running_) {
    if (view.places != fresh.running_.at(id).places)
      return failed("the index has other places for job " + id.text());
  }
  if (!free_.same_free(fresh.free_)) return failed("the index of free room is wrong");
  if (!full_.same_free(fresh.full_)) return failed("the index of all nodes is wrong");
  return {};
}

}  // namespace tutti::cluster
