#include "control/wire/convert.hpp"
#include "control/wire/json.hpp"
#include "control/wire/views.hpp"

namespace tutti::wire {
namespace {

std::string time_text(Instant time) { return time == Instant() ? "" : format_instant(time); }

void fill_person(const cluster::State& state, const people::Person& person, proto::PersonView& view) {
  view.set_name(person.name);
  view.set_kind(std::string(people::name_of(person.kind)));
  for (const people::Grant& grant : person.grants) to_proto(grant, *view.add_roles());
  view.set_blocked(person.blocked);
  view.set_made_at(time_text(person.made_at));
  const auto tokens = state.people.tokens_of.find(person.name);
  if (tokens != state.people.tokens_of.end())
    view.set_tokens(static_cast<std::int32_t>(tokens->second.size()));
}

void fill_token(const people::Token& token, Instant now, proto::TokenView& view) {
  view.set_id(token.id);
  view.set_person(token.person);
  if (token.role_max != people::Role::admin) view.set_role(std::string(people::name_of(token.role_max)));
  view.set_queue(token.queue);
  view.set_purpose(token.purpose);
  view.set_made_at(time_text(token.made_at));
  view.set_expires_at(time_text(token.expires_at));
  view.set_used_at(time_text(token.used_at));
  view.set_expired(people::has_expired(token, now));
}

}  // namespace

std::string people_json(const cluster::State& state, const Shows& shows) {
  proto::PersonList list;
  for (const auto& [name, person] : state.people.persons) {
    if (shows(person)) fill_person(state, person, *list.add_people());
  }
  return print(list);
}

std::string tokens_json(const cluster::State& state, Instant now, const Shows& shows) {
  proto::TokenList list;
  for (const auto& [name, ids] : state.people.tokens_of) {
    const auto person = state.people.persons.find(name);
    if (person == state.people.persons.end() || !shows(person->second)) continue;
    for (const people::TokenId& id : ids) fill_token(state.people.tokens.at(id), now, *list.add_tokens());
  }
  return print(list);
}

std::string whoami_json(const people::Caller& caller) {
  proto::WhoamiView view;
  view.set_name(caller.name);
  for (const people::Grant& grant : caller.grants) to_proto(grant, *view.add_roles());
  view.set_expires_at(time_text(caller.until));
  view.set_cluster_token(caller.root);
  return print(view);
}

std::string new_token_json(const people::Token& token, const std::string& secret) {
  proto::TokenReply reply;
  reply.set_id(token.id);
  reply.set_token(secret);
  reply.set_person(token.person);
  reply.set_expires_at(time_text(token.expires_at));
  return print(reply);
}

}  // namespace tutti::wire
