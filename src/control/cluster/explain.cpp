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

// Can a question about a job of this queue be answered from the copy?
bool serves(const State& state, const Standing& standing, Instant now, const QueueName& queue) {
  const sched::Snapshot& then = standing.snapshot;
  const bool same = then.revision == state.revision && standing.at == now;
  const bool young = now >= standing.at && now - standing.at < standing_age_max;
  const std::size_t copied = standing.views.size() + static_cast<std::size_t>(then.room.nodes());
  const bool shared = young && copied >= standing_shared_min;
  return (same || shared) && standing.numbering == state.index.numbering() &&
         queue_in(then, queue).has_value();
}

// The copy knows those who have jobs now; others may have had some.
void name_user(const State& state, Question& question, const JobSpec& spec) {
  const auto& users = question.standing->snapshot.users;
  const auto found = std::find_if(users.begin(), users.end(), [&](const sched::UserView& user) {
    return user.queue == question.job.queue && user.name == spec.user;
  });
  question.job.user = static_cast<sched::UserIndex>(found - users.begin());
  if (found != users.end()) return;
  question.user = sched::UserView{spec.user, question.job.queue, 0,
                                  state.index.use_of_user(spec.queue, spec.user, question.now).past};
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
  if (!state.standing || !serves(state, *state.standing, now, waiting.spec.queue))
    state.standing = copy_of(state, now);
  question.standing = state.standing;
  question.job = state.index.view_of(waiting);
  // No job of the copy has a shape that came later.
  question.job.shape_class = std::min(question.job.shape_class, question.standing->snapshot.shape_classes);
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
