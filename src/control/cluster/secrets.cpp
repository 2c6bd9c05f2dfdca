// Secrets: who has which, and which of them a job gets. Whether he who asks may is looked at before
// (authorize.hpp).
#include "control/cluster/secrets.hpp"

#include <algorithm>
#include <set>

#include "control/cluster/machine.hpp"
#include "control/people/may.hpp"

namespace tutti::cluster {
namespace {

using Of = SecretId::Of;

bool is_letter_or_digit(char letter) {
  return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
         (letter >= '0' && letter <= '9');
}

Error no_secret(const SecretId& id) {
  return invalid("there is no secret " + text_of(id))
      .remedy("`tutti secret ls` lists those that you may use");
}

// Whose room it takes: that of a person, or of the queue that all queues above it are parts of.
std::string holder_of(const SecretId& id) {
  return id.of == Of::queue ? id.owner.substr(0, id.owner.find('/')) : id.owner;
}

struct Held {
  std::size_t secrets = 0;
  std::size_t bytes = 0;
};
struct Holdings {
  Held of_one;
  Held of_all;
};
// When this one is set.
Holdings holdings_with(const State& state, const SetSecret& event) {
  Holdings holdings{.of_one = {1, event.sealed.size()}, .of_all = {1, event.sealed.size()}};
  const std::string holder = holder_of(event.id);
  for (const auto& [id, secret] : state.secrets) {
    if (id == event.id || id.of == Of::service) continue;
    ++holdings.of_all.secrets;
    holdings.of_all.bytes += secret.sealed.size();
    if (id.of != event.id.of || holder_of(id) != holder) continue;
    ++holdings.of_one.secrets;
    holdings.of_one.bytes += secret.sealed.size();
  }
  return holdings;
}

Error full(const std::string& whose, const std::string& most) {
  return failed(whose + " " + most + ", which is the most").remedy("`tutti secret rm` makes room");
}

// Whoever answers for a queue shuts people out of that one.
bool is_blocked(const State& state, const JobSpec& spec) {
  const auto person = state.people.persons.find(spec.user);
  return person != state.people.persons.end() && person->second.blocked &&
         people::is_within(spec.queue, person->second.blocked_by.queue);
}

// An unknown user is whom the cluster's own token has named, and that may everything.
bool may_still_submit(const State& state, const JobSpec& spec) {
  const auto person = state.people.persons.find(spec.user);
  if (person == state.people.persons.end()) return true;
  people::Caller caller;
  caller.name = spec.user;
  caller.grants = person->second.grants;
  return people::may_submit(caller, spec.queue);
}

const Secret* find_secret(const State& state, const JobSpec& spec, const std::string& name, bool of_queues) {
  const auto own = state.secrets.find({Of::person, spec.user, name});
  if (own != state.secrets.end()) return &own->second;
  for (QueueName queue = spec.queue; of_queues && !queue.empty(); queue = parent_of(queue)) {
    const auto shared = state.secrets.find({Of::queue, queue, name});
    if (shared != state.secrets.end()) return &shared->second;
  }
  return nullptr;
}

}  // namespace

std::string text_of(const SecretId& id) {
  switch (id.of) {
    case Of::person:
      return id.name + " of " + id.owner;
    case Of::queue:
      return id.name + " of the queue " + id.owner;
    case Of::service:
      return id.name + " of the service " + id.owner;
  }
  return id.name;
}

Result<> check_secret_name(std::string_view name) {
  const auto allowed = [](char letter) {
    return is_letter_or_digit(letter) || letter == '_' || letter == '.' || letter == '-';
  };
  const bool fine = !name.empty() && name.size() <= secret_name_bytes_max &&
                    is_letter_or_digit(name.front()) && std::all_of(name.begin(), name.end(), allowed);
  if (fine) return {};
  return invalid("that is no name of a secret")
      .remedy("letters, digits, '_', '.' and '-', at most " + std::to_string(secret_name_bytes_max) +
              ", a letter or a digit first");
}

Result<> check_secret_names(const std::vector<std::string>& names) {
  if (names.size() > job_secrets_max)
    return invalid("a job gets at most " + std::to_string(job_secrets_max) + " secrets").within("secrets");
  std::set<std::string_view> known;
  for (const std::string& name : names) {
    if (auto named = check_secret_name(name); !named) return std::move(named).error().within("secrets");
    if (!known.insert(name).second) return invalid(name + " is there twice").within("secrets");
  }
  return {};
}

bool leaves_room(const State& state, const SetSecret& event) {
  const auto known = state.secrets.find(event.id);
  if (known != state.secrets.end() && event.sealed.size() <= known->second.sealed.size()) return true;
  const Held all = holdings_with(state, event).of_all;
  return all.secrets <= secrets_set_by_others_max && all.bytes <= secrets_bytes_set_by_others_max;
}

Result<std::vector<const Secret*>> secrets_of(const State& state, const JobSpec& spec) {
  if (is_blocked(state, spec))
    return invalid("'" + spec.user + "' is blocked").remedy("`tutti users unblock` lets him in again");
  std::vector<const Secret*> found;
  if (spec.service) {
    const auto key = state.secrets.find({Of::service, spec.service->name, std::string(engine_key_name)});
    if (key == state.secrets.end()) return invalid("the service " + spec.service->name + " has no key");
    found.push_back(&key->second);
  }
  if (spec.secrets.empty()) return found;
  const bool of_queues = may_still_submit(state, spec);
  std::size_t bytes = 0;
  for (const std::string& name : spec.secrets) {
    const Secret* secret = find_secret(state, spec, name, of_queues);
    if (secret == nullptr)
      return invalid("there is no secret " + name + " that '" + spec.user + "' may use in the queue " +
                     spec.queue)
          .remedy("`tutti secret ls` lists those that there are, `tutti secret set " + name + "` makes it");
    bytes += static_cast<std::size_t>(secret->bytes);
    found.push_back(secret);
  }
  if (bytes > job_secrets_bytes_max)
    return invalid("its secrets have " + std::to_string(bytes) + " bytes together, and " +
                   std::to_string(job_secrets_bytes_max) + " are the most for one job");
  return found;
}

Result<> Machine::check_sealed(const SetSecret& event) const {
  if (event.bytes < 1 || static_cast<std::size_t>(event.bytes) > secret_bytes_max || event.sealed.empty() ||
      event.sealed.size() > sealed_bytes_max)
    return invalid("a secret has 1 to " + std::to_string(secret_bytes_max) + " bytes");
  // Between its sealing and now another key may have come: what is sealed under the old one could be left
  // behind when that goes.
  if (event.key.empty() || (!state_.secret_key.empty() && event.key != state_.secret_key))
    return failed("the key of the secrets has just been changed").remedy("try again");
  return {};
}

void Machine::keep_secret(const SetSecret& event) {
  if (state_.secret_key.empty()) {
    state_.secret_key = event.key;
    effects_.cluster = true;
  }
  state_.secrets.insert_or_assign(event.id,
                                  Secret{event.id, event.key, event.sealed, event.bytes, now_, event.by});
  effects_.secrets.insert(event.id);
}

void Machine::on(const SetSecret& event) {
  const SecretId& id = event.id;
  if (auto named = check_secret_name(id.name); !named) return fail(std::move(named).error());
  if (id.of == Of::queue && !state_.queues.contains(id.owner))
    return fail(invalid("there is no queue '" + id.owner + "'").remedy("`tutti queues` lists them"));
  if (auto sealed = check_sealed(event); !sealed) return fail(std::move(sealed).error());
  const auto [of_one, of_all] = holdings_with(state_, event);
  const std::string whose =
      id.of == Of::queue ? "the queue " + holder_of(id) + " with its parts has" : "'" + id.owner + "' has";
  if (of_one.secrets > secrets_of_one_max)
    return fail(full(whose, std::to_string(secrets_of_one_max) + " secrets"));
  if (of_one.bytes > secrets_bytes_of_one_max) return fail(full(whose, "8 MiB of secrets"));
  if (of_all.secrets > secrets_max)
    return fail(full("the cluster has", std::to_string(secrets_max) + " secrets"));
  if (of_all.bytes > secrets_bytes_max) return fail(full("the cluster has", "64 MiB of secrets"));
  keep_secret(event);
}

void Machine::on(const RemoveSecret& event) {
  if (state_.secrets.erase(event.id) == 0) return fail(no_secret(event.id));
  effects_.secrets.insert(event.id);
}

// What there is stays under the old key until it is sealed anew, bit by bit (SecretsRewrapped).
void Machine::on(const UseSecretKey& event) {
  if (event.key.empty() || event.key.size() > secret_key_id_bytes_max)
    return fail(invalid("that is no id of a key"));
  if (event.key == state_.secret_key) return;
  state_.secret_key = event.key;
  effects_.cluster = true;
}

// Whatever was set or removed since it was sealed anew stays as it is.
void Machine::on(const SecretsRewrapped& event) {
  for (const SecretsRewrapped::One& one : event.secrets) {
    const auto known = state_.secrets.find(one.id);
    if (known == state_.secrets.end() || known->second.sealed != one.before ||
        event.key != state_.secret_key || one.sealed.empty() || one.sealed.size() > sealed_bytes_max)
      continue;
    known->second.sealed = one.sealed;
    known->second.key = event.key;
    effects_.secrets.insert(one.id);
  }
}

// It was placed, and what it asked for could not be opened: none of its ranks has been told to start.
void Machine::on(const SecretsWithheld& event) {
  Job* job = find(event.job);
  if (job == nullptr || !job->placed() || job->attempt != event.attempt) return;
  end(*job, EndCause::withheld, event.why);
}

// A person has to give it what it lacks.
void Machine::withhold(Job& job, const std::string& why) {
  job.held = "is held: " + why + "; `tutti release " + job.id.text() + "` tries again";
  job.reason = job.held;
}

void Machine::forget_secrets(SecretId::Of of, const std::string& owner) {
  for (auto at = state_.secrets.lower_bound({of, owner, ""}); at != state_.secrets.end();) {
    if (at->first.of != of || at->first.owner != owner) break;
    effects_.secrets.insert(at->first);
    at = state_.secrets.erase(at);
  }
}

}  // namespace tutti::cluster
