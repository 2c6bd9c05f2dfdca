#include "control/cluster/authorize.hpp"

#include <algorithm>

namespace tutti::cluster {
namespace {

using people::Caller;
using people::Role;

Error may_not(const Caller& caller, const std::string& what, const std::string& remedy) {
  return forbidden("'" + caller.name + "' may not " + what).remedy(remedy);
}

Error needs(const Caller& caller, const std::string& what, Role role, const std::string& queue) {
  return may_not(caller, what,
                 "that takes the role " + people::text_of({role, queue}) +
                     "; `tutti whoami` tells which roles you have");
}

// One overload for each request. What agents and time bring is nobody's request.
class Gate {
 public:
  Gate(const State& state, const Caller& caller) : state_(state), caller_(caller) {}

  Result<> operator()(const Submit& event) const {
    for (const JobSpec& spec : event.specs) {
      if (!people::may_submit(caller_, spec.queue))
        return needs(caller_, "submit to the queue " + spec.queue, Role::user, spec.queue);
      // The elements of an array share them.
      if (&spec != &event.specs.front() && spec.after == event.specs.front().after) continue;
      for (const Dependency& dependency : spec.after) {
        if (visible_job(state_, caller_, dependency.job) == nullptr)
          return not_visible(state_, dependency.job).within("what it is to come after");
      }
    }
    return {};
  }

  Result<> operator()(const Cancel& event) const { return end(event.job, "end job "); }
  Result<> operator()(const Release& event) const { return end(event.job, "release job "); }

  Result<> operator()(const Drain&) const { return cluster_wide("drain nodes", Role::operate); }
  Result<> operator()(const Resume&) const { return cluster_wide("resume nodes", Role::operate); }
  Result<> operator()(const RemoveNode&) const { return cluster_wide("remove nodes", Role::operate); }
  Result<> operator()(const MakeJoinToken&) const { return cluster_wide("let nodes in", Role::operate); }
  Result<> operator()(const RevokeJoinToken&) const { return cluster_wide("let nodes in", Role::operate); }
  Result<> operator()(const RevokeNode&) const { return cluster_wide("revoke nodes", Role::operate); }
  Result<> operator()(const FabricMeasured&) const {
    return cluster_wide("say how fast the fabric is", Role::operate);
  }

  Result<> operator()(const SetQueue& event) const { return shape(event.name); }
  Result<> operator()(const RemoveQueue& event) const { return shape(event.name); }

  // Its ranks run as the account of whose it is: nobody else says what they run.
  Result<> operator()(const Serve& event) const {
    const auto known = state_.services.find(event.name);
    const bool as_before = event.only_command && known != state_.services.end();
    const QueueName& queue = as_before ? known->second.queue() : event.replica.queue;
    if (known != state_.services.end() && !caller_.root && known->second.user() != caller_.name)
      return may_not(caller_, "make or change a service of that name",
                     "it is somebody else's; whoever made it updates it");
    if (people::may_submit(caller_, queue)) return {};
    return needs(caller_, "serve in the queue " + queue, Role::user, queue);
  }
  Result<> operator()(const Promote& event) const { return steer(event.service, "promote the canary of "); }
  Result<> operator()(const RollBack& event) const { return steer(event.service, "roll back "); }
  Result<> operator()(const ScaleService& event) const { return steer(event.service, "scale "); }
  Result<> operator()(const StopService& event) const { return steer(event.service, "stop "); }
  Result<> operator()(const GatewayTold&) const {
    return cluster_wide("say what is asked of services", Role::operate);
  }

  Result<> operator()(const SetSecret& event) const {
    if (event.id.of == SecretId::Of::service) return given_by_the_cluster();
    if (event.id.of == SecretId::Of::queue) {
      if (auto may = keep_secrets_of(event.id.owner); !may) return may;
    } else if (!caller_.root && !is_his_own(event.id)) {
      return may_not(caller_, "set a secret of '" + event.id.owner + "'",
                     "everybody sets his own, with a token that is for no queue alone");
    }
    if (!is_admin() && !leaves_room(state_, event)) return too_many("secrets");
    return {};
  }
  Result<> operator()(const RemoveSecret& event) const {
    if (event.id.of == SecretId::Of::service) return given_by_the_cluster();
    if (event.id.of == SecretId::Of::queue) return keep_secrets_of(event.id.owner);
    if (is_admin() || is_his_own(event.id)) return {};
    return may_not(
        caller_, "remove a secret of '" + event.id.owner + "'",
        "everybody removes his own, with a token that is for no queue alone, and an admin those of "
        "others");
  }
  Result<> operator()(const UseSecretKey&) const {
    return cluster_wide("change the key of the secrets", Role::admin);
  }

  Result<> operator()(const RemoveJobs& event) const {
    for (const JobId id : event.jobs) {
      const Job* job = visible_job(state_, caller_, id);
      if (job == nullptr) return not_visible(state_, id);
      if (!people::may_put_away_job(caller_, job->spec.queue))
        return needs(caller_, "put away job " + id.text(), Role::queue_admin, job->spec.queue);
    }
    return {};
  }

  Result<> operator()(const SetPerson& event) const {
    const std::vector<people::Grant> grants = event.grants.value_or(std::vector<people::Grant>());
    const auto known = state_.people.persons.find(event.name);
    const bool is_known = known != state_.people.persons.end();
    const people::Kind kind = is_known ? known->second.kind : event.kind.value_or(people::Kind::person);
    const bool is_nobodys = !is_known || known->second.grants.empty();
    if (kind == people::Kind::service && is_nobodys && !people::may_make_service(caller_))
      return may_not(
          caller_, "make the service account '" + event.name + "'",
          "an admin makes it, because its jobs run as the account of its name on the nodes; whoever "
          "lets people into its queue then makes its tokens");
    if (!people::may_let_in(caller_, grants)) return may_not_change(event.name);
    if (!is_known && !is_admin() && has_something(event.name))
      return may_not(caller_, "let '" + event.name + "' in",
                     "jobs or secrets are there of somebody who is called so: an admin says who that is");
    if (is_known && !people::may_change_person(caller_, known->second)) return may_not_change(event.name);
    if (is_known && !event.blocked.value_or(true)) return let_in_again(known->second);
    if (!is_known && !is_admin() && state_.people.persons.size() >= people::people_made_by_others_max)
      return too_many("users");
    return {};
  }
  Result<> operator()(const RemovePerson& event) const {
    const auto known = state_.people.persons.find(event.name);
    const bool is_known = known != state_.people.persons.end();
    const bool may =
        is_known ? people::may_change_person(caller_, known->second) : people::may_let_in(caller_, {});
    if (!may) return may_not_change(event.name);
    return is_known ? let_in_again(known->second) : Result<>();
  }
  Result<> operator()(const IssueToken& event) const {
    const auto person = state_.people.persons.find(event.token.person);
    // Whom he may not change he need not know of.
    if (person != state_.people.persons.end() &&
        people::may_make_token(caller_, person->second, event.token)) {
      if (!is_admin() && state_.people.tokens.size() >= people::tokens_made_by_others_max)
        return too_many("tokens");
      return {};
    }
    if (person == state_.people.persons.end() && is_admin()) return {};
    return may_not(
        caller_, "make that token",
        event.token.person == caller_.name
            ? "a token makes none that may more, or lives longer, than itself"
            : "everybody makes his own; an admin makes those of others, and who lets people into a "
              "queue those of its service accounts");
  }
  Result<> operator()(const RevokeToken& event) const {
    const auto token = state_.people.tokens.find(event.token);
    if (token == state_.people.tokens.end()) return {};
    const auto person = state_.people.persons.find(token->second.person);
    if (person != state_.people.persons.end()) {
      if (people::may_revoke_token(caller_, person->second, token->second)) return {};
      if (people::may_revoke_tokens_of(caller_, person->second))
        return may_not(caller_, "revoke that token",
                       "a token revokes none that may more than itself; use one that may as much");
    }
    return invalid("there is no such token").remedy("`tutti tokens` lists them");
  }

  // It has happened, or was refused, by then.
  Result<> operator()(const Noted&) const { return {}; }

  template <class Other>
  Result<> operator()(const Other&) const {
    return forbidden("nobody asks for that: the cluster does it by itself");
  }

 private:
  static Error given_by_the_cluster() {
    return forbidden("the keys of services are made and given by the cluster itself");
  }
  Result<> steer(const ServiceName& name, const std::string& what) const {
    const Service* service = visible_service(state_, caller_, name);
    if (service == nullptr) return no_visible_service(name);
    if (people::may_end_job(caller_, service->queue(), service->user())) return {};
    return needs(caller_, what + "the service " + name + ", which is of '" + service->user() + "'",
                 Role::queue_admin, service->queue());
  }
  // His jobs in all queues get it.
  bool is_his_own(const SecretId& id) const {
    return id.owner == caller_.name && caller_.queue.empty() && people::has_somewhere(caller_, Role::user);
  }
  Result<> keep_secrets_of(const QueueName& queue) const {
    if (people::may_keep_secrets_of(caller_, queue)) return {};
    return needs(caller_, "set or remove secrets of the queue " + queue, Role::queue_admin, queue);
  }
  bool is_admin() const { return people::has(caller_, Role::admin, people::everything); }
  // Whom the cluster's own token has named, and whom nobody has let in.
  bool has_something(const people::Name& name) const {
    if (state_.unfinished.of_user(name) > 0) return true;
    const auto first = state_.secrets.lower_bound({SecretId::Of::person, name, ""});
    return first != state_.secrets.end() && first->first.of == SecretId::Of::person &&
           first->first.owner == name;
  }
  // What one who may make them could use up, all others would lack.
  static Error too_many(const std::string& what) {
    return failed("there are so many " + what + " that only an admin makes more")
        .remedy("remove those that nobody needs, or ask an admin");
  }
  Result<> end(JobId id, const std::string& what) const {
    const Job* job = visible_job(state_, caller_, id);
    if (job == nullptr) return not_visible(state_, id);
    if (people::may_end_job(caller_, job->spec.queue, job->spec.user)) return {};
    return needs(caller_, what + id.text() + ", which is of '" + job->spec.user + "'", Role::queue_admin,
                 job->spec.queue);
  }
  Result<> cluster_wide(const std::string& what, Role role) const {
    if (people::has(caller_, role, people::everything)) return {};
    return needs(caller_, what, role, "");
  }
  Result<> shape(const QueueName& name) const {
    if (people::may_shape_queue(caller_, name)) return {};
    const QueueName above = parent_of(name);
    return needs(caller_, "change the queue " + name, above.empty() ? Role::operate : Role::queue_admin,
                 above);
  }
  Error may_not_change(const people::Name& name) const {
    return may_not(
        caller_, "change '" + name + "'",
        "who lets people into a queue gives and takes roles in it and its parts; whoever has roles "
        "elsewhere, too, or none any more, is changed by an admin");
  }
  Result<> let_in_again(const people::Person& person) const {
    if (!person.blocked || people::may_unblock(caller_, person)) return {};
    return may_not(
        caller_, "undo that '" + person.name + "' is blocked",
        "it was done with the role " + people::text_of(person.blocked_by) + ", and takes as high a one");
  }

  const State& state_;
  const Caller& caller_;
};

// Submitted since he is known: not by somebody who was called so before.
bool is_of(const State& state, const Job& job, const people::Name& name) {
  if (job.spec.user != name) return false;
  const auto person = state.people.persons.find(name);
  return person == state.people.persons.end() || job.id.number() >= person->second.jobs_from;
}

// With a token that is for that queue, too.
bool may_see_own(const people::Caller& caller, const QueueName& queue) {
  return !caller.root && people::is_within(queue, caller.queue);
}

}  // namespace

Result<people::Caller> identify(const State& state, Instant now, const people::Credential& credential) {
  auto caller = people::caller_of(state.people, credential, now);
  if (caller) return *std::move(caller);
  return forbidden("the token opens nothing any more")
      .remedy("it was revoked or has expired: ask for another");
}

void sign(Event& event, const people::Caller& caller) {
  if (auto* set = std::get_if<SetSecret>(&event)) set->by = caller.name;
  if (auto* set = std::get_if<SetPerson>(&event)) set->by = caller.grants;
  if (caller.root) return;
  if (auto* submit = std::get_if<Submit>(&event)) {
    for (JobSpec& spec : submit->specs) spec.user = caller.name;
  }
  if (auto* serve = std::get_if<Serve>(&event)) serve->replica.user = caller.name;
  if (auto* cancel = std::get_if<Cancel>(&event)) cancel->by = caller.name;
  if (auto* promote = std::get_if<Promote>(&event)) promote->by = caller.name;
  if (auto* back = std::get_if<RollBack>(&event)) back->by = caller.name;
  if (auto* scale = std::get_if<ScaleService>(&event)) scale->by = caller.name;
  if (auto* stop = std::get_if<StopService>(&event)) stop->by = caller.name;
}

Result<> authorize(const State& state, const people::Caller& caller, const Event& event) {
  return std::visit(Gate(state, caller), event);
}

bool may_see(const people::Caller& caller, const QueueName& queue, const std::string& user) {
  return (user == caller.name && may_see_own(caller, queue)) || people::may_see_job(caller, queue);
}

bool may_see(const people::Caller& caller, const SecretId& id) {
  if (id.of == SecretId::Of::service) return false;
  if (people::has(caller, people::Role::admin, people::everything)) return true;
  if (id.of == SecretId::Of::person) return id.owner == caller.name;
  // His jobs may be in a part of the queue alone, and get it there.
  return people::may_submit(caller, id.owner) ||
         std::any_of(caller.grants.begin(), caller.grants.end(), [&](const people::Grant& grant) {
           return grant.role >= people::Role::user && people::is_within(grant.queue, id.owner);
         });
}

// Whoever submitted it sees it, too, when his role has gone. Who is called as he was, or has a role in a
// queue that is called as that was, is somebody else if he came later.
bool may_see(const State& state, const people::Caller& caller, const Job& job) {
  if (is_of(state, job, caller.name) && may_see_own(caller, job.spec.queue)) return true;
  return std::any_of(caller.grants.begin(), caller.grants.end(), [&](const people::Grant& grant) {
    if (!people::is_within(job.spec.queue, grant.queue)) return false;
    const auto queue = state.queues.find(grant.queue);
    return queue == state.queues.end() || job.id.number() >= queue->second.jobs_from;
  });
}

const Job* visible_job(const State& state, const people::Caller& caller, JobId job) {
  const auto found = state.jobs.find(job);
  return found != state.jobs.end() && may_see(state, caller, found->second) ? &found->second : nullptr;
}

const Service* visible_service(const State& state, const people::Caller& caller, const ServiceName& name) {
  const auto found = state.services.find(name);
  if (found == state.services.end()) return nullptr;
  return may_see(caller, found->second.queue(), found->second.user()) ? &found->second : nullptr;
}

Error no_visible_service(const ServiceName& name) {
  return invalid("there is no service '" + name.substr(0, service_name_bytes_max) + "' that you may see")
      .remedy("`tutti services` lists those");
}

Error not_visible(const State& state, JobId job) {
  if (!state.jobs.contains(job)) return no_job(state, job);
  return invalid("there is no job " + job.text() + " that you may see")
      .remedy("`tutti jobs --all` lists those");
}

}  // namespace tutti::cluster
