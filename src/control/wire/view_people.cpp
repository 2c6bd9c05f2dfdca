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

// Of a page: to look at somebody costs one, and each of his roles another, whether he is shown or not.
constexpr std::size_t people_looks_max = 20'000;

// Whoever is of the page, in order; where it ends, or "" if all were looked at. `show` tells how many it has
// shown.
std::string turn_page(const cluster::State& state, const PeopleQuery& query, const auto& show) {
  std::size_t shown = 0;
  std::size_t looks = 0;
  std::string last;
  const auto& persons = state.people.persons;
  for (auto at = persons.upper_bound(query.after); at != persons.end(); ++at) {
    if (shown >= query.limit || looks >= people_looks_max) return last;
    const people::Person& person = at->second;
    last = person.name;
    looks += 1 + person.grants.size();
    if (!query.shows || query.shows(person)) shown += show(person);
  }
  return "";
}

}  // namespace

std::string people_json(const cluster::State& state, const PeopleQuery& query) {
  proto::PersonList list;
  list.set_next(turn_page(state, query, [&](const people::Person& person) {
    fill_person(state, person, *list.add_people());
    return std::size_t{1};
  }));
  return print(list);
}

std::string tokens_json(const cluster::State& state, Instant now, const PeopleQuery& query) {
  proto::TokenList list;
  list.set_next(turn_page(state, query, [&](const people::Person& person) {
    const auto ids = state.people.tokens_of.find(person.name);
    if (ids == state.people.tokens_of.end()) return std::size_t{0};
    for (const people::TokenId& id : ids->second)
      fill_token(state.people.tokens.at(id), now, *list.add_tokens());
    return ids->second.size();
  }));
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
