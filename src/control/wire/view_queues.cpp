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
  view.set_queued(use.waiting);
  view.set_running(use.running);
  view.set_gpus(gpus_of(use.in_use));
  view.set_gpus_past(use.past / sched::whole_share);
  view.set_guarantee_gpus(gpus_of(queue.guarantee));
  if (queue.limit != sched::no_limit) view.set_limit_gpus(gpus_of(queue.limit));
  if (queue.user_limit != sched::no_limit) view.set_user_limit_gpus(gpus_of(queue.user_limit));
  view.set_weight(queue.weight);
  if (queue.priority_max != cluster::priority_max) view.set_priority_max(queue.priority_max);
}

// Who was here months ago has nothing to do with it any more.
void fill_user(const std::string& name, const cluster::Usage::Use& use, proto::QueueView& view) {
  const double past = use.past / sched::whole_share;
  if (use.waiting == 0 && use.running == 0 && past < past_gpus_min) return;
  proto::QueueUserView& user = *view.add_users();
  user.set_name(name);
  user.set_gpus(gpus_of(use.in_use));
  user.set_gpus_past(past);
  user.set_queued(use.waiting);
  user.set_running(use.running);
}

}  // namespace

std::string queues_json(const cluster::State& state, Instant now, const people::Caller& caller) {
  proto::QueueList list;
  for (const auto& [name, queue] : state.queues) {
    proto::QueueView& view = *list.add_queues();
    fill_queue(state, queue, now, view);
    if (!people::has(caller, people::Role::viewer, name)) continue;
    for (const auto& [user, use] : state.index.users_of_queue(name, now)) fill_user(user, use, view);
  }
  return print(list);
}

}  // namespace tutti::wire
