#include "control/cluster/explain.hpp"

#include <algorithm>

#include "control/cluster/machine.hpp"

namespace tutti::cluster {
namespace {

std::optional<sched::QueueIndex> queue_in(const sched::Snapshot& snapshot, const QueueName& name) {
  const auto found = std::find_if(snapshot.queues.begin(), snapshot.queues.end(),
                                  [&](const sched::QueueView& queue) { return queue.name == name; });
  if (found == snapshot.queues.end()) return std::nullopt;
  return static_cast<sched::QueueIndex>(found - snapshot.queues.begin());
}

std::shared_ptr<const Standing> copy_of(State& state, Instant now) {
  auto standing = std::make_shared<Standing>();
  standing->at = now;
  standing->snapshot = snapshot(state, now);
  standing->numbering = state.index.numbering();
  standing->views.reserve(standing->snapshot.queued.size() + standing->snapshot.running.size());
  for (auto* list : {&standing->snapshot.queued, &standing->snapshot.running}) {
    for (const sched::JobView*& view : *list) view = &standing->views.emplace_back(*view);
  }
  standing->past = *standing->snapshot.past;
  standing->snapshot.past = &standing->past;
  return standing;
}

// Can a question about this job be answered from the copy?
bool serves(const State& state, const Standing& standing, Instant now, const sched::JobView& job,
            const QueueName& queue) {
  const sched::Snapshot& then = standing.snapshot;
  const bool same = then.revision == state.revision && standing.at == now;
  const bool young = now >= standing.at && now - standing.at < standing_age_max;
  const bool shared = young && standing.views.size() >= standing_shared_jobs_min;
  return (same || shared) && standing.numbering == state.index.numbering() &&
         job.shape_class < then.shape_classes && queue_in(then, queue).has_value();
}

// The copy knows those who have jobs now; others may have had some.
void name_user(const State& state, Question& question, const JobSpec& spec) {
  const auto& users = question.standing->snapshot.users;
  const auto found = std::find_if(users.begin(), users.end(), [&](const sched::UserView& user) {
    return user.queue == question.job.queue && user.name == spec.user;
  });
  question.job.user = static_cast<sched::UserIndex>(found - users.begin());
  if (found != users.end()) return;
  question.user = sched::UserView{spec.user, question.job.queue, 0, 0};
  for (const auto& [name, use] : state.index.users_of_queue(spec.queue, question.now)) {
    if (name == spec.user) question.user->past = use.past;
  }
}

}  // namespace

sched::Explanation Question::answer(const sched::Patience& patience) const {
  if (!user && held_by.empty()) return sched::explain(standing->snapshot, job, now, patience);
  sched::Snapshot changed = standing->snapshot;
  if (user) changed.users.push_back(*user);
  if (!held_by.empty()) changed.held.push_back({job.id, held_by});
  return sched::explain(changed, job, now, patience);
}

Question question_about(State& state, Instant now, const Job& waiting) {
  Question question;
  question.now = now;
  question.job = state.index.view_of(state, waiting);
  if (!state.standing || !serves(state, *state.standing, now, question.job, waiting.spec.queue))
    state.standing = copy_of(state, now);
  question.standing = state.standing;
  question.job.queue = queue_in(question.standing->snapshot, waiting.spec.queue).value();
  name_user(state, question, waiting.spec);
  question.held_by = waits_for(state, waiting);
  return question;
}

Result<Question> question_about(State& state, Instant now, const Submit& submit) {
  if (auto admitted = admit(state, now, submit); !admitted) return std::move(admitted).error();
  Job job;
  job.id = JobId(state.next_job);
  job.spec = submit.specs.front();
  job.submitted_at = job.queued_at = now;
  return question_about(state, now, job);
}

}  // namespace tutti::cluster
