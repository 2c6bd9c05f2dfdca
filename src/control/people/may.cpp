#include "control/people/may.hpp"

#include <algorithm>

namespace tutti::people {
namespace {

// What is left of a role where its token has less, or elsewhere.
std::optional<Grant> within_token(const Grant& grant, const Token& token) {
  const Role role = std::min(grant.role, token.role_max);
  if (is_within(grant.queue, token.queue)) return Grant{role, grant.queue};
  if (!is_within(token.queue, grant.queue)) return std::nullopt;
  // Of the whole cluster or of nothing.
  return Grant{std::min(role, Role::queue_admin), token.queue};
}

}  // namespace

Caller root_caller() {
  return {.name = Name(root_name), .root = true, .grants = {{Role::admin, std::string(everything)}}};
}

Caller caller_with(const Token& token, const std::vector<Grant>& grants) {
  Caller caller{
      .name = token.person, .role_max = token.role_max, .queue = token.queue, .until = token.expires_at};
  for (const Grant& grant : grants) {
    if (auto left = within_token(grant, token)) caller.grants.push_back(std::move(*left));
  }
  return caller;
}

std::optional<Caller> caller_of(const People& people, const Credential& credential, Instant now) {
  if (credential.root) return root_caller();
  const auto token = people.tokens.find(credential.token);
  if (token == people.tokens.end() || has_expired(token->second, now)) return std::nullopt;
  const auto person = people.persons.find(token->second.person);
  if (person == people.persons.end() || person->second.blocked) return std::nullopt;
  return caller_with(token->second, person->second.grants);
}

bool has(const Caller& caller, Role role, std::string_view queue) {
  return std::any_of(caller.grants.begin(), caller.grants.end(),
                     [&](const Grant& grant) { return grant.role >= role && is_within(queue, grant.queue); });
}

bool has_somewhere(const Caller& caller, Role role) {
  return std::any_of(caller.grants.begin(), caller.grants.end(),
                     [&](const Grant& grant) { return grant.role >= role; });
}

bool may_see_job(const Caller& caller, std::string_view queue) { return has(caller, Role::viewer, queue); }

bool may_submit(const Caller& caller, std::string_view queue) { return has(caller, Role::user, queue); }

bool may_end_job(const Caller& caller, std::string_view queue, const Name& user) {
  return has(caller, Role::queue_admin, queue) || (user == caller.name && has(caller, Role::user, queue));
}

bool may_shape_queue(const Caller& caller, std::string_view queue) {
  const std::size_t end = queue.rfind('/');
  return has(caller, Role::queue_admin, end == std::string_view::npos ? everything : queue.substr(0, end));
}

bool may_put_away_job(const Caller& caller, std::string_view queue) {
  return has(caller, Role::queue_admin, queue);
}

bool may_keep_secrets_of(const Caller& caller, std::string_view queue) {
  return has(caller, Role::queue_admin, queue);
}

bool may_grant(const Caller& caller, const Grant& grant) {
  if (has(caller, Role::admin, everything)) return true;
  return grant.role <= Role::queue_admin && has(caller, Role::queue_admin, grant.queue);
}

bool may_let_in(const Caller& caller, const std::vector<Grant>& grants) {
  return has_somewhere(caller, Role::queue_admin) &&
         std::all_of(grants.begin(), grants.end(),
                     [&](const Grant& grant) { return may_grant(caller, grant); });
}

bool may_change_person(const Caller& caller, const Person& person) {
  if (has(caller, Role::admin, everything)) return true;
  return !person.grants.empty() && may_let_in(caller, person.grants);
}

Grant highest_over(const std::vector<Grant>& callers, const std::vector<Grant>& grants) {
  const auto holds = [&](const Grant& own) {
    return own.role >= Role::queue_admin && std::any_of(grants.begin(), grants.end(), [&](const Grant& of) {
             return is_within(of.queue, own.queue);
           });
  };
  std::optional<Grant> highest;
  for (const Grant& own : callers) {
    if (!holds(own)) continue;
    const bool is_higher = !highest || own.role > highest->role ||
                           (own.role == highest->role && is_within(highest->queue, own.queue));
    if (is_higher) highest = own;
  }
  return highest.value_or(Grant{Role::admin, std::string(everything)});
}

bool may_unblock(const Caller& caller, const Person& person) {
  return has(caller, person.blocked_by.role, person.blocked_by.queue);
}

bool may_revoke_tokens_of(const Caller& caller, const Person& person) {
  if (person.name == caller.name || has(caller, Role::admin, everything)) return true;
  return person.kind == Kind::service && may_change_person(caller, person);
}

bool may_revoke_token(const Caller& caller, const Person& person, const Token& token) {
  if (has(caller, Role::admin, everything)) return true;
  return may_revoke_tokens_of(caller, person) && token.role_max <= caller.role_max &&
         is_within(token.queue, caller.queue);
}

bool may_make_service(const Caller& caller) { return has(caller, Role::admin, everything); }

void bound_by(const Caller& caller, Token& token) {
  token.role_max = std::min(token.role_max, caller.role_max);
  if (token.queue.empty()) token.queue = caller.queue;
  if (caller.until == Instant()) return;
  token.expires_at = token.expires_at == Instant() ? caller.until : std::min(token.expires_at, caller.until);
}

bool may_make_token(const Caller& caller, const Person& person, const Token& token) {
  if (caller.root) return true;
  const bool no_longer =
      caller.until == Instant() || (token.expires_at != Instant() && token.expires_at <= caller.until);
  return may_revoke_tokens_of(caller, person) && token.role_max <= caller.role_max &&
         is_within(token.queue, caller.queue) && no_longer;
}

}  // namespace tutti::people
