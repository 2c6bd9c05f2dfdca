#include "control/cluster/explain.hpp"

#include <algorithm>

#include "control/cluster/machine.hpp"

namespace tutti::cluster {
namespace {

sched::QueueIndex queue_in(const sched::Snapshot& snapshot, const QueueName& name) {
  const auto found = std::find_if(snapshot.queues.begin(), snapshot.queues.end(),
                                  [&](const sched::QueueView& queue) { return queue.name == name; });
  TUTTI_CHECK(found != snapshot.queues.end());
  return static_cast<sched::QueueIndex>(found - snapshot.queues.begin());
}

// The snapshot knows those who have jobs now; others may have had some.
sched::UserIndex user_in(const State& state, sched::Snapshot& snapshot, Instant now, const JobSpec& spec,
                         sched::QueueIndex queue) {
  const auto found = std::find_if(
      snapshot.users.begin(), snapshot.users.end(),
      [&](const sched::UserView& user) { return user.queue == queue && user.name == spec.user; });
  if (found != snapshot.users.end()) return static_cast<sched::UserIndex>(found - snapshot.users.begin());
  sched::UserView user{spec.user, queue, 0, 0};
  for (const auto& [name, use] : state.index.users_of_queue(spec.queue, now)) {
    if (name == spec.user) user.past = use.past;
  }
  snapshot.users.push_back(user);
  return static_cast<sched::UserIndex>(snapshot.users.size() - 1);
}

}  // namespace

Question question_about(State& state, Instant now, const Job& waiting) {
  Question question;
  question.now = now;
  question.job = state.index.view_of(state, waiting);
  question.snapshot = snapshot(state, now);
  question.job.queue = queue_in(question.snapshot, waiting.spec.queue);
  question.job.user = user_in(state, question.snapshot, now, waiting.spec, question.job.queue);
  question.views.reserve(question.snapshot.queued.size() + question.snapshot.running.size());
  for (auto* list : {&question.snapshot.queued, &question.snapshot.running}) {
    for (const sched::JobView*& view : *list) view = &question.views.emplace_back(*view);
  }
  question.past = std::make_shared<const sched::Past>(*question.snapshot.past);
  question.snapshot.past = question.past.get();
  return question;
}

Result<Question> question_about(State& state, Instant now, const Submit& submit) {
  if (auto admitted = admit(state, now, submit); !admitted) return std::move(admitted).error();
  Job job;
  job.id = JobId(state.next_job);
  job.spec = submit.specs.front();
  job.submitted_at = job.queued_at = now;
  Question question = question_about(state, now, job);
  if (std::string why = waits_for(state, job, now); !why.empty())
    question.snapshot.held.push_back({job.id, std::move(why)});
  return question;
}

}  // namespace tutti::cluster
