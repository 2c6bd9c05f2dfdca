#include "control/cluster/index.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "control/cluster/machine.hpp"

namespace tutti::cluster {
namespace {

constexpr double ln2 = 0.693147180559945309417232121458;
// Enough to tell what a cluster is used for.
constexpr std::size_t mix_shapes_max = 64;
// Beyond it those of jobs that are long gone are forgotten.
constexpr std::size_t shapes_max = 65'536;
// A new run time counts this much for what a user's jobs usually take, and estimates leave some room.
constexpr double usual_weight = 0.3;
constexpr double usual_margin = 1.5;

sched::NodeView view_of(const Node& node) {
  sched::NodeView view{node.name, node.location, {}, node.inventory.cpus, node.inventory.memory, true};
  view.devices.reserve(node.inventory.devices.size());
  for (const Device& device : node.inventory.devices)
    view.devices.push_back({device.model, device.memory, sched::whole_share, device.numa});
  return view;
}

// "a/b/c", "a/b", "a".
template <class Visit>
void up_from(const std::string& queue, Visit visit) {
  for (std::string name = queue;;) {
    visit(name);
    const auto slash = name.rfind('/');
    if (slash == std::string::npos) return;
    name.resize(slash);
  }
}

}  // namespace

void Index::Used::add(double more, Instant now) {
  if (now > at) {
    amount *= std::exp2(-in_seconds(now - at) / in_seconds(usage_half_life));
    at = now;
  }
  amount += more;
}

// Constant use of one device comes out as 1000 after a while.
double Index::Used::average(Instant now) const {
  const double left =
      now > at ? amount * std::exp2(-in_seconds(now - at) / in_seconds(usage_half_life)) : amount;
  return left * ln2 / in_seconds(usage_half_life) * sched::whole_share;
}

void Index::rebuild(const State& state, Instant now) {
  *this = Index();
  // In the order in which they ended, so that what was long ago counts as that.
  std::vector<const Job*> ended;
  for (const auto& [id, job] : state.jobs) {
    if (job.finished()) {
      ended.push_back(&job);
    } else if (job.placed()) {
      starts(job, state.nodes.at(job.places.front().node).address);
    } else {
      waits(job);
    }
  }
  std::stable_sort(ended.begin(), ended.end(),
                   [](const Job* a, const Job* b) { return a->finished_at < b->finished_at; });
  for (const Job* job : ended) finishes(*job, job->finished_at);
  for (const Job* job : ended) {
    up_from(job->spec.queue,
            [&](const std::string& name) { queues_[name].add(job->served, job->finished_at); });
    users_[{job->spec.queue, job->spec.user}].add(job->served, job->finished_at);
  }
  for (const auto& entry : state.jobs) {
    const Job& job = entry.second;  // a binding cannot be captured
    if (job.finished() || job.served == 0) continue;
    up_from(job.spec.queue, [&](const std::string& name) { queues_[name].add(job.served, now); });
    users_[{job.spec.queue, job.spec.user}].add(job.served, now);
  }
}

Index::ShapeClass& Index::intern(const sched::Shape& shape) {
  const auto [at, added] = shapes_.try_emplace(shape);
  if (added) {
    at->second.shape = std::make_shared<const sched::Shape>(shape);
    at->second.number = static_cast<std::uint32_t>(shapes_.size() - 1);
  }
  return at->second;
}

std::uint32_t Index::kind_of(const Job& job) {
  const KindKey key{{job.spec.queue, job.spec.user}, intern(job.spec.shape).number};
  return kinds_.try_emplace(key, static_cast<std::uint32_t>(kinds_.size())).first->second;
}

void Index::fill(const Job& job, sched::JobView& view) {
  const ShapeClass& known = intern(job.spec.shape);
  view.id = job.id;
  view.attempt = job.attempt;
  view.priority = job.spec.priority;
  view.submitted_at = job.submitted_at;
  view.queued_at = job.queued_at;
  view.shape = known.shape;
  view.shape_class = known.number;
  view.kind = kind_of(job);
  view.grace = job.spec.grace;
  view.time_limit = job.spec.time_limit;
  view.expected = job.spec.time_limit > Duration::zero() ? job.spec.time_limit : usual(job.spec.user);
  if (const auto real = remaining_.find(job.id); real != remaining_.end()) view.remaining = real->second;
  view.served = job.served;
  view.yields = job.spec.yields;
}

void Index::waits(const Job& job) {
  fill(job, waiting_jobs_[job.id]);
  if (job.attempt == 0) {
    intern(job.spec.shape).seen += 1;
    seen_ += 1;
  }
}

void Index::use(const Job& job, std::int64_t share) {
  up_from(job.spec.queue, [&](const std::string& name) { queues_[name].in_use += share; });
  users_[{job.spec.queue, job.spec.user}].in_use += share;
}

void Index::count_nodes(const Job& job, bool there) {
  for (const NodeName& node : nodes_of(job)) {
    if (there) {
      on_node_[node].insert(job.id);
    } else if (const auto at = on_node_.find(node); at != on_node_.end()) {
      at->second.erase(job.id);
      if (at->second.empty()) on_node_.erase(at);
    }
  }
}

void Index::starts(const Job& job, const std::string& address) {
  waiting_jobs_.erase(job.id);
  sched::JobView& view = running_[job.id];
  fill(job, view);
  view.started_at = job.started_at;
  view.saved_at = job.saved_at;
  view.ending = job.ending != EndCause::none;
  use(job, gpu_share_total(job));
  count_nodes(job, true);
  ports_[job.id] = {address, job.master_port};
  ++ports_taken_[ports_[job.id]];
  if (stale_) return;
  auto places = room_.compact(job.spec.shape, job.places);
  TUTTI_CHECK(places.has_value());
  room_.take(job.spec.shape, *places);
  view.places = std::move(*places);
}

void Index::releases(const Job& job, Instant now) {
  const auto at = running_.find(job.id);
  TUTTI_CHECK(at != running_.end());
  if (!stale_) room_.give(job.spec.shape, at->second.places);
  running_.erase(at);
  use(job, -gpu_share_total(job));
  count_nodes(job, false);
  if (const auto taken = ports_taken_.find(ports_[job.id]); --taken->second == 0) ports_taken_.erase(taken);
  ports_.erase(job.id);
  const double amount =
      static_cast<double>(gpu_share_total(job)) / sched::whole_share * in_seconds(now - job.started_at);
  up_from(job.spec.queue, [&](const std::string& name) { queues_[name].add(amount, now); });
  users_[{job.spec.queue, job.spec.user}].add(amount, now);
}

void Index::finishes(const Job& job, Instant now) {
  waiting_jobs_.erase(job.id);
  remaining_.erase(job.id);
  if (job.served > 0) {
    const double devices =
        static_cast<double>(job.spec.shape.ranks) * job.spec.shape.gpu_share / sched::whole_share;
    past_.add(kind_of(job), job.submitted_at, job.served / devices, devices);
  }
  if (job.state != JobState::succeeded || job.spec.user.empty()) return;
  const double took = in_seconds(now - job.started_at);
  const auto [at, first] = usual_s_.try_emplace(job.spec.user, took);
  if (!first) at->second += usual_weight * (took - at->second);
}

void Index::saved(const Job& job) {
  if (const auto at = running_.find(job.id); at != running_.end()) at->second.saved_at = job.saved_at;
}

void Index::ends(const Job& job) {
  if (const auto at = running_.find(job.id); at != running_.end()) at->second.ending = true;
}

void Index::opens(const Node& node) {
  if (stale_) return;
  if (const auto at = room_.find(node.name)) room_.set_open(*at, takes_work(node));
}

void Index::planned(const sched::Plan& plan) {
  waiting_ = plan.waiting;
  promises_ = plan.promises;
  wake_ = plan.wake;
}

void Index::knows(sched::JobId job, Duration remaining) {
  remaining_[job] = remaining;
  if (const auto at = waiting_jobs_.find(job); at != waiting_jobs_.end()) at->second.remaining = remaining;
}

void Index::refresh(const State& state) {
  if (std::max(shapes_.size(), kinds_.size()) > shapes_max) {
    shapes_.clear();
    kinds_.clear();
    past_ = {};
    for (auto& [id, view] : waiting_jobs_) fill(state.jobs.at(id), view);
    for (auto& [id, view] : running_) fill(state.jobs.at(id), view);
  }
  if (!stale_) return;
  std::vector<sched::NodeView> views;
  views.reserve(state.nodes.size());
  for (const auto& [name, node] : state.nodes) views.push_back(cluster::view_of(node));
  full_ = sched::Room(views);
  room_ = full_;
  for (const auto& [name, node] : state.nodes) room_.set_open(*room_.find(name), takes_work(node));
  for (auto& [id, view] : running_) {
    auto places = room_.compact(*view.shape, state.jobs.at(id).places);
    TUTTI_CHECK(places.has_value());
    room_.take(*view.shape, *places);
    view.places = std::move(*places);
  }
  promises_.clear();
  ++generation_;
  stale_ = false;
}

const sched::Room& Index::room(const State& state) {
  refresh(state);
  return room_;
}

const sched::Room& Index::full_room(const State& state) {
  refresh(state);
  return full_;
}

const std::set<sched::JobId>& Index::jobs_on(const std::string& node) const {
  static const std::set<sched::JobId> none;
  const auto at = on_node_.find(node);
  return at == on_node_.end() ? none : at->second;
}

bool Index::port_taken(const std::string& address, std::int32_t port) const {
  return ports_taken_.contains({address, port});
}

const sched::Promise* Index::promise(sched::JobId job) const {
  const auto at = std::find_if(promises_.begin(), promises_.end(),
                               [&](const sched::Promise& promise) { return promise.job == job; });
  return at == promises_.end() ? nullptr : &*at;
}

Index::Use Index::use_of_queue(const std::string& queue, Instant now) const {
  const auto at = queues_.find(queue);
  if (at == queues_.end()) return {};
  return {at->second.in_use, at->second.average(now)};
}

std::vector<std::pair<std::string, Index::Use>> Index::users_of_queue(const std::string& queue,
                                                                      Instant now) const {
  std::vector<std::pair<std::string, Use>> users;
  for (auto at = users_.lower_bound({queue, ""}); at != users_.end() && at->first.queue == queue; ++at)
    users.emplace_back(at->first.user, Use{at->second.in_use, at->second.average(now)});
  return users;
}

Duration Index::usual(const std::string& user) const {
  const auto at = usual_s_.find(user);
  if (at == usual_s_.end()) return {};
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(at->second * usual_margin));
}

void Index::refresh_mix() {
  // Made anew when half as much again has been seen: it changes slowly.
  if (mix_ && seen_ < seen_at_mix_ * 1.5 + 16) return;
  std::vector<std::pair<sched::Shape, double>> mix;
  for (const auto& [shape, known] : shapes_) {
    if (known.seen > 0) mix.emplace_back(shape, known.seen);
  }
  std::stable_sort(mix.begin(), mix.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  if (mix.size() > mix_shapes_max) mix.resize(mix_shapes_max);
  mix_ = std::make_shared<const sched::Mix>(sched::make_mix(std::move(mix)));
  seen_at_mix_ = seen_;
}

sched::Snapshot Index::snapshot(const State& state, Instant now) {
  refresh(state);
  refresh_mix();
  sched::Snapshot snapshot;
  snapshot.revision = state.revision;
  snapshot.room = room_;
  snapshot.fabric = state.fabric;
  snapshot.mix = mix_;
  snapshot.past = &past_;
  snapshot.shape_classes = static_cast<std::uint32_t>(shapes_.size());
  std::map<std::string, sched::QueueIndex> numbers;
  for (const auto& [name, queue] : state.queues) {
    const Use use = use_of_queue(name, now);
    const auto slash = name.rfind('/');
    const sched::QueueIndex parent = slash == std::string::npos ? -1 : numbers.at(name.substr(0, slash));
    numbers.emplace(name, static_cast<sched::QueueIndex>(snapshot.queues.size()));
    snapshot.queues.push_back(
        {name, parent, queue.guarantee, queue.limit, queue.user_limit, queue.weight, use.in_use, use.past});
  }
  std::map<UserKey, sched::UserIndex> users;
  const auto user_number = [&](const JobSpec& spec) {
    const auto [at, added] =
        users.try_emplace({spec.queue, spec.user}, static_cast<sched::UserIndex>(snapshot.users.size()));
    if (added) {
      const auto known = users_.find(at->first);
      const bool fresh = known == users_.end();
      snapshot.users.push_back({spec.user, numbers.at(spec.queue), fresh ? 0 : known->second.in_use,
                                fresh ? 0 : known->second.average(now)});
    }
    return at->second;
  };
  ArrayRoom array_room(state);
  snapshot.queued.reserve(waiting_jobs_.size());
  const Job* previous = nullptr;
  for (auto& [id, view] : waiting_jobs_) {
    const Job& job = state.jobs.at(id);
    if (std::string why = waits_for(state, job); !why.empty()) {
      snapshot.held.push_back({id, std::move(why)});
      continue;
    }
    if (!array_room.take(job)) {
      snapshot.held.push_back({id, "waits for other elements of its array: at most " +
                                       std::to_string(job.spec.array->limit) + " run at once"});
      continue;
    }
    // Neighbours in the queue are often of one user.
    const bool same =
        previous != nullptr && previous->spec.queue == job.spec.queue && previous->spec.user == job.spec.user;
    view.user = same ? snapshot.queued.back()->user : user_number(job.spec);
    view.queue = snapshot.users[static_cast<std::size_t>(view.user)].queue;
    snapshot.queued.push_back(&view);
    previous = &job;
  }
  snapshot.running.reserve(running_.size());
  for (auto& [id, view] : running_) {
    view.user = user_number(state.jobs.at(id).spec);
    view.queue = snapshot.users[static_cast<std::size_t>(view.user)].queue;
    snapshot.running.push_back(&view);
  }
  return snapshot;
}

Result<> Index::check(const State& state) const {
  Index fresh;
  fresh.rebuild(state, {});
  fresh.refresh(state);
  const auto ids = [](const std::map<sched::JobId, sched::JobView>& views) {
    std::vector<std::tuple<sched::JobId, std::int32_t, bool>> found;
    found.reserve(views.size());
    for (const auto& [id, view] : views) found.emplace_back(id, view.attempt, view.ending);
    return found;
  };
  if (ids(waiting_jobs_) != ids(fresh.waiting_jobs_)) return failed("the index of waiting jobs is wrong");
  if (ids(running_) != ids(fresh.running_)) return failed("the index of running jobs is wrong");
  if (on_node_ != fresh.on_node_) return failed("the index of nodes is wrong");
  if (ports_taken_ != fresh.ports_taken_) return failed("the index of ports is wrong");
  for (const auto& [name, used] : queues_) {
    if (used.in_use != fresh.use_of_queue(name, {}).in_use)
      return failed("what queue " + name + " uses is counted wrong");
  }
  if (!stale_ && !room_.same_free(fresh.room_)) return failed("the index of free room is wrong");
  return {};
}

sched::JobView Index::view_of(const State& state, const Job& job) {
  refresh(state);
  sched::JobView view;
  fill(job, view);
  return view;
}

}  // namespace tutti::cluster
