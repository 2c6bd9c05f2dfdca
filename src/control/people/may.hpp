// Who may do what: the one place with these rules. Whoever asks brings a caller, which is what a person may
// through the token that was shown. Pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "control/people/people.hpp"

namespace tutti::people {

// How a request has shown who sends it: with the cluster's own token, or with one of a person. What that may
// is looked up when it matters, since it may be another one by then.
struct Credential {
  bool root = false;
  TokenId token = {};

  friend bool operator==(const Credential&, const Credential&) = default;
};
inline const Credential root_credential{.root = true};

struct Caller {
  Name name;
  bool root = false;  // with the cluster's own token: an admin who acts for whomever he names
  std::vector<Grant> grants = {};
  // What the token itself may at most, until when: it makes no other that may more.
  Role role_max = Role::admin;
  std::string queue = {};
  Instant until = {};  // zero: for ever

  friend bool operator==(const Caller&, const Caller&) = default;
};
Caller root_caller();

// Of whoever has that token and these roles.
Caller caller_with(const Token& token, const std::vector<Grant>& grants);
// Nothing if it opens nothing: it was revoked, has expired, or its person is blocked or gone.
std::optional<Caller> caller_of(const People& people, const Credential& credential, Instant now);

// In that queue, and so in its parts; "" asks for the whole cluster.
bool has(const Caller& caller, Role role, std::string_view queue);
// In some queue at least.
bool has_somewhere(const Caller& caller, Role role);

// A job of that queue and user.
bool may_see_job(const Caller& caller, std::string_view queue);
bool may_submit(const Caller& caller, std::string_view queue);
bool may_end_job(const Caller& caller, std::string_view queue, const Name& user);
// Make it, change it or remove it: what stands above somebody he does not change, and so not his own share.
bool may_shape_queue(const Caller& caller, std::string_view queue);
// Set and remove what all who submit there may use.
bool may_keep_secrets_of(const Caller& caller, std::string_view queue);
bool may_put_away_job(const Caller& caller, std::string_view queue);

// Give or take that role.
bool may_grant(const Caller& caller, const Grant& grant);
// To somebody who is not known yet: these roles.
bool may_let_in(const Caller& caller, const std::vector<Grant>& grants);
// Whoever has a role that the caller could not give stands above him. Who has none is nobody's who answers
// for a queue alone: an admin changes him.
bool may_change_person(const Caller& caller, const Person& person);
// As what the caller stands above somebody with these roles: the highest of his own that holds over one of
// them.
Grant highest_over(const std::vector<Grant>& callers, const std::vector<Grant>& grants);
// Let in again whom somebody has blocked, or remove him, who could then be let in anew: it takes as high a
// role.
bool may_unblock(const Caller& caller, const Person& person);
// Choose the name of a service account: ranks run as the Unix account that is called so, with tokens that a
// queue-admin makes. So an admin does, also for one that no role holds in any queue.
bool may_make_service(const Caller& caller);
// See them: he himself; an admin of everybody; of a service account whoever may change it.
bool may_revoke_tokens_of(const Caller& caller, const Person& person);
// And revoke this one, which may no more than the one that asks, unless an admin does.
bool may_revoke_token(const Caller& caller, const Person& person, const Token& token);
// What is not said is as the token has it that asks, which could not give more, nor for longer.
void bound_by(const Caller& caller, Token& token);
// And make one, which may no more and no longer than the one that asks, be it an admin's.
bool may_make_token(const Caller& caller, const Person& person, const Token& token);

}  // namespace tutti::people
