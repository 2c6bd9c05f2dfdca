#include "control/people/people.hpp"

#include <algorithm>

namespace tutti::people {
namespace {

bool is_small_letter(char letter) { return letter >= 'a' && letter <= 'z'; }
bool is_digit(char letter) { return letter >= '0' && letter <= '9'; }

}  // namespace

std::string_view name_of(Kind kind) {
  switch (kind) {
    case Kind::person:
      return "person";
    case Kind::service:
      return "service";
  }
  return "";
}

Result<> check_name(std::string_view name) {
  const auto letter = [](char one) {
    return is_small_letter(one) || is_digit(one) || one == '-' || one == '_' || one == '.' || one == '@';
  };
  if (name == root_name)
    return invalid("'" + std::string(name) + "' is who holds the cluster's own token, and nobody else");
  if (!name.empty() && name.size() <= name_bytes_max &&
      (is_small_letter(name.front()) || name.front() == '_') && std::all_of(name.begin(), name.end(), letter))
    return {};
  return invalid("that is no name of a person")
      .remedy("small letters, digits, '-', '_', '.' and '@', at most " + std::to_string(name_bytes_max) +
              ", a letter first");
}

Result<std::vector<Grant>> tidy_grants(std::vector<Grant> grants) {
  std::map<std::string, Role> highest;
  for (const Grant& grant : grants) {
    if (grant.role > Role::queue_admin && !grant.queue.empty())
      return invalid("the role " + std::string(name_of(grant.role)) +
                     " is for the whole cluster, and not for '" + grant.queue + "'")
          .remedy("queue-admin is the most that can be had in a part of the queues");
    const auto [known, is_new] = highest.try_emplace(grant.queue, grant.role);
    if (!is_new) known->second = std::max(known->second, grant.role);
  }
  if (highest.size() > grants_per_person_max)
    return invalid("one person has roles in at most " + std::to_string(grants_per_person_max) + " queues")
        .remedy("a role in a queue holds in all its parts");
  grants.clear();
  for (const auto& [queue, role] : highest) grants.push_back({role, queue});
  return grants;
}

void add(People& people, Token token) {
  people.tokens_of[token.person].insert(token.id);
  if (token.expires_at != Instant()) people.expiring.emplace(token.expires_at, token.id);
  TokenId id = token.id;
  people.tokens.insert_or_assign(std::move(id), std::move(token));
}

void remove_token(People& people, const TokenId& id) {
  const auto found = people.tokens.find(id);
  if (found == people.tokens.end()) return;
  if (const auto theirs = people.tokens_of.find(found->second.person); theirs != people.tokens_of.end()) {
    theirs->second.erase(id);
    if (theirs->second.empty()) people.tokens_of.erase(theirs);
  }
  people.expiring.erase({found->second.expires_at, id});
  people.tokens.erase(found);
}

std::vector<TokenId> remove_person(People& people, const Name& name) {
  std::vector<TokenId> gone;
  if (const auto theirs = people.tokens_of.find(name); theirs != people.tokens_of.end()) {
    gone.assign(theirs->second.begin(), theirs->second.end());
    for (const TokenId& id : gone) remove_token(people, id);
  }
  people.persons.erase(name);
  return gone;
}

bool has_expired(const Token& token, Instant now) {
  return token.expires_at != Instant() && now >= token.expires_at;
}

}  // namespace tutti::people
