#include <map>

#include "control/wire/convert.hpp"
#include "control/wire/json.hpp"
#include "control/wire/views.hpp"

namespace tutti::wire {
namespace {

// Used on average, lately: what is less is not worth a line.
constexpr double past_gpus_min = 0.001;

void fill_queue(const cluster::State& state, const cluster::Queue& queue, Instant now,
                proto::QueueView& view) {
  const auto use = state.index.use_of_queue(queue.name, now);
  view.set_name(queue.name);
  view.set_gpus(gpus_of(use.in_use));
  view.set_gpus_past(use.past / sched::whole_share);
  view.set_guarantee_gpus(gpus_of(queue.guarantee));
  if (queue.limit != sched::no_limit) view.set_limit_gpus(gpus_of(queue.limit));
  if (queue.user_limit != sched::no_limit) view.set_user_limit_gpus(gpus_of(queue.user_limit));
  view.set_weight(queue.weight);
  if (queue.priority_max != cluster::priority_max) view.set_priority_max(queue.priority_max);
}

}  // namespace

std::string queues_json(const cluster::State& state, Instant now) {
  std::map<std::string, proto::QueueView> views;
  std::map<std::pair<std::string, std::string>, proto::QueueUserView> users;  // by queue and name
  for (const auto& [name, queue] : state.queues) {
    fill_queue(state, queue, now, views[name]);
    for (const auto& [user, use] : state.index.users_of_queue(name, now)) {
      auto& view = users[{name, user}];
      view.set_gpus(gpus_of(use.in_use));
      view.set_gpus_past(use.past / sched::whole_share);
    }
  }
  for (const auto id : state.active) {
    const auto& job = state.jobs.at(id);
    const auto count = [&](auto& view) {
      job.placed() ? view.set_running(view.running() + 1) : view.set_queued(view.queued() + 1);
    };
    for (std::string name = job.spec.queue; !name.empty(); name = cluster::parent_of(name))
      count(views[name]);
    count(users[{job.spec.queue, job.spec.user}]);
  }
  for (auto& [key, user] : users) {
    // Who was here months ago has nothing to do with it any more.
    if (user.queued() == 0 && user.running() == 0 && user.gpus_past() < past_gpus_min) continue;
    auto* added = views[key.first].add_users();
    *added = user;
    added->set_name(key.second);
  }
  proto::QueueList list;
  for (auto& [name, view] : views) *list.add_queues() = view;
  return print(list);
}

}  // namespace tutti::wire
