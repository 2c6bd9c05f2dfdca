// Who is known, with which roles and tokens. Whether he who asks may is looked at before (authorize.hpp).
#include "control/people/people.hpp"

#include <algorithm>

#include "control/cluster/machine.hpp"
#include "control/people/may.hpp"

namespace tutti::cluster {
namespace {

// Of the time at which a token was last used.
constexpr Duration use_noted_every = 1h;
// Expired ones go a few at a time, and what has just expired is still told for a while.
constexpr Duration expired_kept = 24h * 7;
constexpr std::size_t tokens_expired_per_step_max = 100;

Error no_person(const people::Name& name) {
  return invalid("there is nobody called '" + name + "'").remedy("`tutti users` lists who is known");
}

// Of whom was not known: what is under way was submitted for him with the cluster's own token, and is not of
// whoever was called so before, because nobody is removed who has unfinished jobs.
std::uint64_t first_job_of(const State& state, const people::Name& name) {
  if (state.unfinished.of_user(name) == 0) return state.next_job;
  const auto first = std::find_if(state.active.begin(), state.active.end(),
                                  [&](const JobId id) { return state.jobs.at(id).spec.user == name; });
  return first == state.active.end() ? state.next_job : first->number();
}

// Who is blocked stays so by the highest who wanted it.
void block(people::Person& person, const std::vector<people::Grant>& by) {
  people::Grant as = people::highest_over(by, person.grants);
  const people::Grant& before = person.blocked_by;
  const bool is_as_high = as.role >= before.role && people::is_within(before.queue, as.queue);
  if (!person.blocked || is_as_high) person.blocked_by = std::move(as);
}

}  // namespace

void Machine::on(const SetPerson& event) {
  const auto known = state_.people.persons.find(event.name);
  const bool is_new = known == state_.people.persons.end();
  if (auto named = people::check_name(event.name); !named) return fail(std::move(named).error());
  if (is_new && state_.people.persons.size() >= people::people_max)
    return fail(failed("there are " + std::to_string(people::people_max) + " users, which is the most"));
  if (is_new && !event.grants) return fail(no_person(event.name));
  people::Person person = is_new ? people::Person{.name = event.name,
                                                  .kind = {},
                                                  .grants = {},
                                                  .blocked = false,
                                                  .made_at = now_,
                                                  .jobs_from = first_job_of(state_, event.name)}
                                 : known->second;
  if (!is_new && event.kind && *event.kind != person.kind)
    return fail(
        invalid("'" + event.name + "' is a " + std::string(people::name_of(person.kind)) + ", and stays one")
            .remedy("remove it first; its tokens go with it"));
  person.kind = event.kind.value_or(person.kind);
  if (event.blocked.value_or(false)) block(person, event.by);
  person.blocked = event.blocked.value_or(person.blocked);
  if (event.grants) {
    auto grants = people::tidy_grants(*event.grants);
    if (!grants) return fail(std::move(grants).error());
    for (const people::Grant& grant : *grants) {
      if (!grant.queue.empty() && !state_.queues.contains(grant.queue))
        return fail(invalid("there is no queue '" + grant.queue + "'").remedy("`tutti queues` lists them"));
    }
    person.grants = *std::move(grants);
  }
  if (!is_new && person == known->second) return;
  state_.people.persons.insert_or_assign(event.name, std::move(person));
  effects_.persons.insert(event.name);
}

void Machine::on(const RemovePerson& event) {
  if (!state_.people.persons.contains(event.name)) return fail(no_person(event.name));
  // Whoever is called so later would have them.
  if (const std::size_t jobs = state_.unfinished.of_user(event.name); jobs > 0)
    return fail(invalid("'" + event.name + "' has " + std::to_string(jobs) + " unfinished jobs")
                    .remedy("cancel them, or block '" + event.name + "': his tokens then open nothing"));
  for (const auto& [name, service] : state_.services) {
    if (service.user() == event.name)
      return fail(invalid("the service " + name + " is of '" + event.name + "'")
                      .remedy("`tutti serve stop " + name + "`, or block '" + event.name +
                              "': its replicas then start no more"));
  }
  for (people::TokenId& id : people::remove_person(state_.people, event.name))
    effects_.tokens.insert(std::move(id));
  forget_secrets(SecretId::Of::person, event.name);
  effects_.persons.insert(event.name);
}

Result<> Machine::admit_token(const people::Token& token) {
  if (!state_.people.persons.contains(token.person)) return no_person(token.person);
  if (state_.people.tokens.contains(token.id))
    return failed("there is a token of that id").remedy("try again");
  if (token.purpose.size() > people::purpose_bytes_max)
    return invalid("what a token is for is said in at most " + std::to_string(people::purpose_bytes_max) +
                   " bytes");
  if (token.expires_at != Instant() && token.expires_at <= now_)
    return invalid("the token would have expired before it is made");
  if (token.expires_at != Instant() && token.expires_at - now_ > people::token_life_max)
    return invalid("a token that expires does so within five years");
  if (!token.queue.empty() && !state_.queues.contains(token.queue))
    return invalid("there is no queue '" + token.queue + "'").remedy("`tutti queues` lists them");
  const auto theirs = state_.people.tokens_of.find(token.person);
  if (theirs != state_.people.tokens_of.end() && theirs->second.size() >= people::tokens_per_person_max)
    return failed("'" + token.person + "' has " + std::to_string(people::tokens_per_person_max) +
                  " tokens, which is the most")
        .remedy("`tutti tokens revoke ID` makes room");
  if (state_.people.tokens.size() >= people::tokens_max)
    return failed("there are " + std::to_string(people::tokens_max) + " tokens, which is the most");
  return {};
}

void Machine::add_token(people::Token token) {
  token.made_at = now_;
  token.used_at = {};
  effects_.tokens.insert(token.id);
  people::add(state_.people, std::move(token));
}

void Machine::on(const IssueToken& event) {
  make_room_for_token();
  if (auto admitted = admit_token(event.token); !admitted) return fail(std::move(admitted).error());
  add_token(event.token);
}

// Those that have expired are kept to be shown, as long as nobody needs their place.
void Machine::make_room_for_token() {
  const auto& expiring = state_.people.expiring;
  if (state_.people.tokens.size() < people::tokens_max || expiring.empty()) return;
  if (now_ >= expiring.begin()->first) drop_token(expiring.begin()->second);
}

// Those who log in again and again push out the oldest of their own logins, and nothing else.
void Machine::on(const LogIn& event) {
  const auto known = state_.people.persons.find(event.token.person);
  const std::string who = "'" + event.token.person + "'";
  if (known == state_.people.persons.end() || known->second.kind != people::Kind::person)
    return fail(forbidden(who + " is not let in here").remedy("an admin lets people in: `tutti users set`"));
  people::Person& person = known->second;
  if (person.blocked) return fail(forbidden(who + " is blocked").remedy("ask an admin"));
  if (event.login.size() > people::login_bytes_max) return fail(invalid("that login has too long a name"));
  if (!person.login.empty() && person.login != event.login)
    return fail(forbidden(who + " is somebody else here, who has logged in before")
                    .remedy("an admin removes the user and lets the new one in, if it is the same person"));
  people::Token token = event.token;
  token.purpose = std::string(people::login_purpose);
  people::TokenId oldest;
  std::size_t logins = 0;
  if (const auto theirs = state_.people.tokens_of.find(person.name);
      theirs != state_.people.tokens_of.end()) {
    for (const people::TokenId& id : theirs->second) {
      const people::Token& other = state_.people.tokens.at(id);
      if (other.purpose != people::login_purpose) continue;
      ++logins;
      if (oldest.empty() || other.made_at < state_.people.tokens.at(oldest).made_at) oldest = id;
    }
  }
  make_room_for_token();
  const bool is_full = state_.people.tokens.size() >= people::tokens_max;
  if (logins >= people::logins_per_person_max || (is_full && logins > 0)) drop_token(oldest);
  if (auto admitted = admit_token(token); !admitted) return fail(std::move(admitted).error());
  if (person.login != event.login) {
    person.login = event.login;
    effects_.persons.insert(person.name);
  }
  add_token(std::move(token));
}

void Machine::on(const RevokeToken& event) {
  if (!state_.people.tokens.contains(event.token))
    return fail(invalid("there is no such token").remedy("`tutti tokens` lists them"));
  drop_token(event.token);
}

void Machine::on(const TokensUsed& event) {
  for (const people::TokenId& id : event.tokens) {
    const auto token = state_.people.tokens.find(id);
    if (token == state_.people.tokens.end()) continue;
    const Instant before = token->second.used_at;
    if (before != Instant() && now_ - before < use_noted_every) continue;
    token->second.used_at = now_;
    effects_.tokens_used.insert(id);
  }
}

void Machine::drop_token(people::TokenId id) {
  people::remove_token(state_.people, id);
  effects_.tokens.insert(std::move(id));
}

// A queue of its name that somebody makes later is another one, and nobody has a role in it.
void Machine::forget_queue(const QueueName& queue) {
  for (auto& [name, person] : state_.people.persons) {
    if (std::erase_if(person.grants, [&](const people::Grant& grant) { return grant.queue == queue; }) > 0)
      effects_.persons.insert(name);
    if (!person.blocked || person.blocked_by.queue != queue) continue;
    person.blocked_by.queue = parent_of(queue);
    effects_.persons.insert(name);
  }
  std::vector<people::TokenId> gone;
  for (const auto& [id, token] : state_.people.tokens) {
    if (token.queue == queue) gone.push_back(id);
  }
  for (people::TokenId& id : gone) drop_token(std::move(id));
  forget_secrets(SecretId::Of::queue, queue);
}

void Machine::expire_tokens() {
  const auto& expiring = state_.people.expiring;
  for (std::size_t gone = 0; gone < tokens_expired_per_step_max; ++gone) {
    if (expiring.empty() || now_ - expiring.begin()->first < expired_kept) return;
    drop_token(expiring.begin()->second);
  }
}

}  // namespace tutti::cluster
