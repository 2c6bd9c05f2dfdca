#include <utility>

#include "control/cluster/machine.hpp"

namespace tutti::cluster {
namespace {

std::string describe_cluster(const State& state) {
  std::map<std::string, std::int64_t> devices;
  std::int64_t cpus = 0;
  for (const auto& [name, node] : state.nodes) {
    for (const Device& device : node.inventory.devices) ++devices[device.model];
    cpus += node.inventory.cpus;
  }
  std::string text = "the cluster has " + std::to_string(state.nodes.size()) + " nodes";
  for (const auto& [model, count] : devices) text += ", " + std::to_string(count) + " " + model;
  return text + ", " + std::to_string(cpus) + " CPUs";
}

bool same_lists(const JobSpec& one, const JobSpec& other) {
  return one.command == other.command && one.env == other.env && one.after == other.after &&
         one.secrets == other.secrets;
}

// Jobs that are submitted and end faster than they may be removed: nothing more is taken until some are.
// Whose they are is refused first, so that the others notice nothing.
Result<> admit_finished(const State& state, const std::string& user) {
  const std::size_t finished = state.ended.jobs();
  const std::size_t kept = state.kept_jobs_max.value_or(finished);
  const std::size_t of_user = state.ended.of_user(user);
  const bool has_many = of_user > finished / finished_many_share;
  if (finished <= kept + (has_many ? finished_over_max : 2 * finished_over_max)) return {};
  return failed("there are " + std::to_string(finished) + " finished jobs, " + std::to_string(of_user) +
                " of them of user '" + user + "', and " + std::to_string(kept) +
                " are to be kept: what is over is still being removed")
      .remedy("submit again in some seconds");
}

// It waits for a person, for its time, or for room on nodes that had none for it.
bool is_put_off(const State& state, const Job& job) {
  return !job.held.empty() || is_paused(state, job) || (!job.placed() && !job.too_small.empty());
}

// The elements of an array are alike: what is large is held once for all of them, however they came.
void share(const JobSpec& first, JobSpec& element) {
  element.command = first.command;
  element.env = first.env;
  element.after = first.after;
  element.secrets = first.secrets;
}

}  // namespace

// Refuses what can never run; what merely has to wait is let in.
Result<> Machine::admit(const JobSpec& spec) {
  if (auto sound = sched::validate(spec.shape); !sound) return sound;
  if (spec.shape.ranks > ranks_max)
    return invalid("a gang has at most " + std::to_string(ranks_max) + " ranks");
  if (spec.command.empty()) return invalid("a job needs a command");
  if (!state_.queues.contains(spec.queue)) {
    return invalid("there is no queue '" + spec.queue + "'").remedy("`tutti queues` lists them");
  }
  for (const Dependency& dependency : spec.after) {
    const auto before = state_.jobs.find(dependency.job);
    if (before == state_.jobs.end()) return no_job(state_, dependency.job).within("what it is to come after");
    const bool hopeless = before->second.finished() && before->second.state != JobState::succeeded;
    if (dependency.success && hopeless) {
      return invalid("job " + dependency.job.text() + ", whose success it needs, has already ended: " +
                     std::string(name_of(before->second.state)));
    }
  }
  if (const auto secrets = secrets_of(state_, spec); !secrets) return secrets.error();
  if (state_.nodes.empty()) return admit_share(spec);
  if (!state_.index.ever_fits(state_, spec.shape)) {
    const sched::Room& room = state_.index.full_room(state_);
    return invalid("this job can never run here: " + sched::describe_refusal(room, spec.shape))
        .remedy(describe_cluster(state_));
  }
  return admit_share(spec);
}

Result<> Machine::admit(const Submit& event) {
  if (event.specs.empty()) return invalid("nothing to submit");
  if (event.specs.size() > static_cast<std::size_t>(array_elements_max))
    return invalid("an array has at most " + std::to_string(array_elements_max) + " elements");
  const std::string& user = event.specs.front().user;
  if (auto room = admit_finished(state_, user); !room) return room;
  if (auto room = state_.unfinished.admit(user, event.specs.size(), unfinished_jobs_max, "unfinished jobs");
      !room)
    return room;
  // The elements of an array differ only in their index, and are admitted together.
  JobSpec first_spec = event.specs.front();
  if (auto admitted = admit(first_spec); !admitted) return admitted;
  if (auto room = state_.bytes.admit(first_spec, event.specs.size()); !room) return room;
  const std::size_t dependencies = first_spec.after.size() * event.specs.size();
  if (auto room = state_.index.dependencies().admit(user, dependencies, dependencies_total_max,
                                                    "dependencies of unfinished jobs");
      !room) {
    const Error& full = room.error();
    return failed(full.message())
        .remedy(full.remedy() + "; many jobs can come after one that comes after all of theirs");
  }
  std::set<std::int32_t> indices;
  for (const JobSpec& spec : event.specs) {
    first_spec.array = spec.array;
    if (spec != first_spec || (event.specs.size() > 1 && !spec.array)) {
      return invalid("several jobs in one request must be the elements of one array")
          .remedy("send other jobs one by one");
    }
    if (spec.array && !indices.insert(spec.array->index).second) {
      return invalid("index " + std::to_string(spec.array->index) + " is there twice")
          .remedy("each element of an array has an index of its own");
    }
  }
  return {};
}

Result<> admit(State& state, Instant now, const Submit& event) {
  Effects none;
  return Machine(state, now, none).admit(event);
}

namespace {

std::optional<JobId> submitted_before(const State& state, Instant now, const Submit& event) {
  if (event.key.empty() || event.specs.empty()) return std::nullopt;
  const std::string& user = event.specs.front().user;
  const auto known = state.submit_keys.find(user, event.key, now);
  const auto person = state.people.persons.find(user);
  // Somebody else was called so then.
  if (known && person != state.people.persons.end() && known->number() < person->second.jobs_from)
    return std::nullopt;
  return known;
}

}  // namespace

bool is_repeated(const State& state, Instant now, const Submit& event) {
  const auto known = submitted_before(state, now, event);
  return known && state.jobs.contains(*known);
}

// The caller did not hear the answer to the first one, and hears it now.
void Machine::repeat(const Submit& event, const Job& first) {
  std::vector<JobId> ids{first.id};
  if (first.spec.array) ids = array_elements(state_, first.id).value();
  // What is large is compared once, and not for each element.
  const JobSpec& said = event.specs.front();
  bool same = ids.size() == event.specs.size() && same_lists(said, first.spec);
  for (std::size_t at = 0; same && at < ids.size(); ++at) {
    JobSpec spec = event.specs[at];
    if (spec.array) spec.array->first = first.id;
    same = same_lists(spec, said);
    share(first.spec, spec);
    same = same && spec == state_.jobs.at(ids[at]).spec;
  }
  if (same) {
    effects_.reply = std::move(ids);
    return;
  }
  fail(invalid("the key '" + event.key + "' is that of job " + first.id.text() + ", which is another one")
           .remedy("make a key of its own for each submit"));
}

void Machine::on(const Submit& event) {
  if (!event.specs.empty() && event.specs.front().service)
    return fail(invalid("of which service a job is a replica, the cluster says"));
  if (is_repeated(state_, now_, event))
    return repeat(event, state_.jobs.at(*submitted_before(state_, now_, event)));
  if (event.only_repeats) return fail(failed("it was done before, and its job is no longer kept"));
  if (auto admitted = admit(event); !admitted) return fail(std::move(admitted).error());
  std::vector<JobId> ids;
  const JobId first(state_.next_job);
  for (const JobSpec& spec : event.specs) {
    Job job;
    job.id = JobId(state_.next_job++);
    job.spec = spec;
    if (job.spec.array) {
      job.spec.array->first = first;
      share(event.specs.front(), job.spec);
    }
    if (job.id == first) job.submit_key = event.key;
    job.submitted_at = job.queued_at = now_;
    job.reason = "waits for the scheduler";
    ids.push_back(job.id);
    touch(job);
    state_.jobs.emplace(job.id, std::move(job));
  }
  if (!event.key.empty()) state_.submit_keys.add(event.specs.front().user, event.key, first, now_);
  effects_.reply = std::move(ids);
  effects_.asked.insert(first);
  effects_.cluster = true;
  effects_.schedule = true;
}

void Machine::let_go(Job& job) {
  job.held.clear();
  job.too_small.clear();
  job.not_before = {};
  job.bad_ends = job.deadly_attempts = job.nodes_lost = 0;
  state_.blame.forget_refusals(job);
  job.reason = "waits for the scheduler";
  touch(job);
  effects_.schedule = true;
}

void Machine::on(const Release& event) {
  if (event.whole_array) {
    const auto elements = array_elements_in(state_.held_back, state_, event.job);
    if (!elements) return fail(elements.error());
    std::vector<JobId> released;
    for (const JobId id : *elements) {
      Job& job = state_.jobs.at(id);
      if (!is_put_off(state_, job)) continue;
      let_go(job);
      released.push_back(id);
    }
    if (released.empty())
      return fail(invalid("no element of the array of job " + event.job.text() + " is held or made to wait"));
    effects_.reply = std::move(released);
    return;
  }
  Job* job = find(event.job);
  if (job == nullptr) return fail(no_job(state_, event.job));
  if (job->finished())
    return fail(
        invalid("job " + event.job.text() + " has ended already: " + std::string(name_of(job->state))));
  if (!is_put_off(state_, *job))
    return fail(invalid("job " + event.job.text() + " is neither held nor made to wait"));
  let_go(*job);
  effects_.reply = std::vector<JobId>{job->id};
}

void Machine::on(const Cancel& event) {
  const std::string reason = "cancelled" + (event.by.empty() ? "" : " by " + event.by);
  if (event.whole_array) return cancel_array(event, reason);
  Job* job = find(event.job);
  if (job == nullptr) return fail(no_job(state_, event.job));
  if (job->finished())
    return fail(
        invalid("job " + event.job.text() + " has ended already: " + std::string(name_of(job->state))));
  effects_.reply = std::vector<JobId>{job->id};
  if (!job->placed()) return finish(*job, JobState::cancelled, reason);
  cancel_placed(*job, reason, event.now);
}

// A cancel overrides whatever else would come after the attempt, and none takes back that its ranks are
// killed. One that says what was said already tells the nodes again, and nothing of it is stored.
void Machine::cancel_placed(Job& job, const std::string& reason, bool now) {
  if (job.ending == EndCause::killed || (job.ending == EndCause::cancelled && !now)) return send_end(job);
  // What is left of their grace period ends now.
  if (now) job.told_at = {};
  job.ending = EndCause::none;
  end(job, now ? EndCause::killed : EndCause::cancelled, reason);
}

void Machine::cancel_array(const Cancel& event, const std::string& reason) {
  auto elements = array_elements_in(state_.active, state_, event.job);
  if (!elements) return fail(std::move(elements).error());
  if (elements->empty())
    return fail(invalid("every element of the array of job " + event.job.text() + " has ended already"));
  for (const JobId id : *elements) {
    Job& job = state_.jobs.at(id);
    if (job.placed()) {
      cancel_placed(job, reason, event.now);
    } else {
      finish(job, JobState::cancelled, reason);
    }
  }
  effects_.reply = std::move(*elements);
}

void Machine::on(const Drain& event) {
  Node* node = find(event.node);
  if (node == nullptr)
    return fail(invalid("there is no node '" + event.node + "'").remedy("`tutti nodes` lists them"));
  if (!std::exchange(node->draining, true)) touch(*node);
  if (!event.now) return;
  for (const JobId id : state_.index.jobs_on(event.node))
    end(state_.jobs.at(id), EndCause::drained, "moved: node " + event.node + " is being drained");
}

void Machine::on(const Resume& event) {
  Node* node = find(event.node);
  if (node == nullptr)
    return fail(invalid("there is no node '" + event.node + "'").remedy("`tutti nodes` lists them"));
  node->draining = false;
  node->fault.clear();
  node->faults = node->times_set_aside = 0;
  state_.blame.forget(node->name);
  touch(*node);
  effects_.schedule = true;
}

void Machine::on(const FabricMeasured& event) {
  auto fabric = make_fabric(event.links, node_names(state_));
  if (!fabric) return fail(std::move(fabric).error());
  for (auto& [ends, link] : *fabric) link.measured_at = now_;
  state_.fabric = std::make_shared<const Fabric>(std::move(*fabric));
  effects_.fabric = true;
}

}  // namespace tutti::cluster
