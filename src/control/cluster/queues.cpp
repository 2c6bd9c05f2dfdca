#include <cmath>

#include "base/text.hpp"
#include "control/cluster/machine.hpp"

namespace tutti::cluster {
namespace {

constexpr double weight_min = 0.001;
constexpr double weight_max = 1'000'000;

// Words of letters, digits, '-', '_' and '.', joined by '/'. Paths hold them: what stands for a folder
// itself, or for the one above it, is taken out on the way, and nobody could reach such a queue again.
Result<> check_name(const QueueName& name) {
  const auto word = [](char letter) {
    return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
           (letter >= '0' && letter <= '9') || letter == '-' || letter == '_' || letter == '.';
  };
  bool sound = !name.empty() && name.size() <= queue_name_max && name.front() != '/' && name.back() != '/';
  for (std::size_t at = 0; at < name.size() && sound; ++at)
    sound = word(name[at]) || (name[at] == '/' && name[at - 1] != '/');
  for (const auto part : split(name, '/')) sound = sound && part != "." && part != "..";
  if (sound) return {};
  return invalid("'" + name + "' is no name of a queue")
      .remedy("letters, digits, '-', '_' and '.'; research/vision is a part of research");
}

bool is_share(std::int64_t share) { return share >= 0 && share <= queue_share_max; }

Result<> check(const Queue& queue) {
  if (auto named = check_name(queue.name); !named) return named;
  if (!is_share(queue.guarantee)) return invalid("the guarantee is out of range");
  if (queue.limit != sched::no_limit && !is_share(queue.limit)) return invalid("the limit is out of range");
  if (queue.user_limit != sched::no_limit && !is_share(queue.user_limit))
    return invalid("the limit for each user is out of range");
  if (!(queue.weight >= weight_min && queue.weight <= weight_max))
    return invalid("the weight is a number from 0.001 to 1000000");
  if (queue.priority_max < -priority_max || queue.priority_max > priority_max)
    return invalid("the largest priority is a number from -1000 to 1000");
  if (queue.limit != sched::no_limit && queue.guarantee > queue.limit)
    return invalid("more is guaranteed to the queue than it may ever use")
        .remedy("raise its limit, or lower its guarantee");
  return {};
}

bool is_below(const QueueName& name, const QueueName& other) {
  return name.size() > other.size() + 1 && name.starts_with(other) && name[other.size()] == '/';
}

// What a parent guarantees is shared out among its parts, and not more than that.
Result<> check_parts(const State& state, const Queue& queue) {
  const QueueName parent = parent_of(queue.name);
  if (!parent.empty() && !state.queues.contains(parent))
    return invalid("there is no queue '" + parent + "' for it to be a part of")
        .remedy("`tutti queues set " + parent + "` creates it");
  const auto guaranteed_below = [&](const QueueName& above) {
    std::int64_t sum = 0;
    for (const auto& [name, other] : state.queues) {
      if (name != queue.name && parent_of(name) == above) sum += other.guarantee;
    }
    return sum;
  };
  if (!parent.empty() && guaranteed_below(parent) + queue.guarantee > state.queues.at(parent).guarantee) {
    return invalid("the parts of " + parent + " would be guaranteed " +
                   sched::format_gpus(guaranteed_below(parent) + queue.guarantee) + " GPUs, and " + parent +
                   " itself only " + sched::format_gpus(state.queues.at(parent).guarantee))
        .remedy("raise the guarantee of " + parent + " first");
  }
  if (guaranteed_below(queue.name) > queue.guarantee) {
    return invalid("its parts are guaranteed " + sched::format_gpus(guaranteed_below(queue.name)) +
                   " GPUs, which is more")
        .remedy("lower their guarantees first");
  }
  return {};
}

}  // namespace

void Machine::on(const SetQueue& event) {
  const auto known = state_.queues.find(event.name);
  Queue queue =
      known == state_.queues.end() ? Queue{.name = event.name, .jobs_from = state_.next_job} : known->second;
  queue.guarantee = event.guarantee.value_or(queue.guarantee);
  queue.limit = event.limit.value_or(queue.limit);
  queue.user_limit = event.user_limit.value_or(queue.user_limit);
  queue.weight = event.weight.value_or(queue.weight);
  queue.priority_max = event.priority_max.value_or(queue.priority_max);
  if (auto sound = check(queue); !sound) return fail(std::move(sound).error().within("queue " + event.name));
  if (auto fits = check_parts(state_, queue); !fits)
    return fail(std::move(fits).error().within("queue " + event.name));
  if (known == state_.queues.end() && state_.queues.size() >= queues_max)
    return fail(invalid("there are " + std::to_string(queues_max) + " queues, which is the most"));
  state_.queues[event.name] = queue;
  effects_.queues.insert(event.name);
  effects_.schedule = true;
}

void Machine::on(const RemoveQueue& event) {
  if (!state_.queues.contains(event.name))
    return fail(invalid("there is no queue '" + event.name + "'").remedy("`tutti queues` lists them"));
  if (event.name == default_queue)
    return fail(invalid("the queue '" + event.name + "' is where jobs go that name none, and stays"));
  for (const auto& [name, queue] : state_.queues) {
    if (is_below(name, event.name))
      return fail(invalid("the queue '" + event.name + "' has a part: " + name).remedy("remove that first"));
  }
  const Usage::Use use = state_.index.use_of_queue(event.name, now_);
  if (const std::int32_t jobs = use.waiting + use.running; jobs > 0)
    return fail(invalid((jobs == 1 ? "a job is" : std::to_string(jobs) + " jobs are") + " in the queue '" +
                        event.name + "'")
                    .remedy("wait for its jobs, or cancel them"));
  for (const auto& [name, service] : state_.services) {
    if (service.queue() == event.name)
      return fail(invalid("the service " + name + " is in the queue '" + event.name + "'")
                      .remedy("`tutti serve stop " + name + "` first"));
  }
  state_.queues.erase(event.name);
  forget_queue(event.name);
  effects_.queues.insert(event.name);
  effects_.schedule = true;
}

// What is beyond a limit for good would wait for ever.
Result<> Machine::admit_share(const JobSpec& spec) const {
  const std::int64_t least = std::int64_t{sched::counts_of(spec.shape).back()} * spec.shape.gpu_share;
  for (QueueName name = spec.queue; !name.empty(); name = parent_of(name)) {
    const Queue& queue = state_.queues.at(name);
    if (queue.limit != sched::no_limit && least > queue.limit)
      return invalid("this job needs " + sched::format_gpus(least) + " GPUs, and the queue " + name +
                     " may use at most " + sched::format_gpus(queue.limit));
    if (spec.priority > queue.priority_max)
      return invalid("the jobs of the queue " + name + " have a priority of at most " +
                     std::to_string(queue.priority_max) + ", not " + std::to_string(spec.priority));
  }
  const Queue& queue = state_.queues.at(spec.queue);
  if (queue.user_limit != sched::no_limit && least > queue.user_limit)
    return invalid("this job needs " + sched::format_gpus(least) + " GPUs, and a user of the queue " +
                   spec.queue + " may use at most " + sched::format_gpus(queue.user_limit));
  return {};
}

}  // namespace tutti::cluster
