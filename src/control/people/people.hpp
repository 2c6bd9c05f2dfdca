// Who is known to the cluster, and by which tokens: plain data that is durable, as the state machine of the
// cluster keeps it. Pure; owned by one loop at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/time.hpp"
#include "control/people/role.hpp"

namespace tutti::people {

constexpr std::size_t people_max = 10'000;
constexpr std::size_t tokens_max = 50'000;
// Of those, who lets people into a queue may make so many of all, and who makes tokens so many: the rest is
// for admins, and for people who log in.
constexpr std::size_t people_made_by_others_max = people_max / 2;
constexpr std::size_t tokens_made_by_others_max = tokens_max / 2;
constexpr std::size_t tokens_per_person_max = 100;
constexpr std::size_t grants_per_person_max = 100;
constexpr std::size_t name_bytes_max = 64;
constexpr std::size_t purpose_bytes_max = 200;
constexpr std::size_t login_bytes_max = 4096;
constexpr std::size_t logins_per_person_max = 20;
constexpr std::string_view login_purpose = "login";  // what such a token is for
constexpr Duration token_life_max = 24h * 366 * 5;
constexpr Duration token_life_default = 24h * 90;

using Name = std::string;
using TokenId = std::string;

// A service account is no person: nobody logs in as it, and whoever may change it makes its tokens.
enum class Kind { person, service };
std::string_view name_of(Kind kind);

struct Person {
  Name name;
  Kind kind = Kind::person;
  std::vector<Grant> grants;  // in order, each queue once
  bool blocked = false;       // none of its tokens opens anything
  Instant made_at;
  // As whom an issuer of logins knows him, since he first came from there: "ISSUER SUBJECT". Names are given
  // anew there, subjects are not. "": he has never logged in.
  std::string login = {};
  // The first job that can be his: those before it are of somebody who was called so earlier, and is gone.
  std::uint64_t jobs_from = 0;
  // As what somebody has blocked him: as much takes whoever lets him in again. An admin where nobody knows.
  Grant blocked_by = {Role::admin, std::string(everything)};

  friend bool operator==(const Person&, const Person&) = default;
};

// Whoever has it acts for the person, within what the token itself may. The secret is shown once and kept
// nowhere: its hash is compared.
struct Token {
  TokenId id;
  Name person;
  std::string hash;  // SHA-256 of the whole text, in hex
  Role role_max = Role::admin;
  std::string queue;    // and only within it; "": everything
  std::string purpose;  // for people
  Instant made_at;
  Instant expires_at;  // zero: never
  Instant used_at;     // to the hour; zero: never yet

  friend bool operator==(const Token&, const Token&) = default;
};

struct People {
  std::map<Name, Person> persons;
  std::map<TokenId, Token> tokens;
  std::map<Name, std::set<TokenId>> tokens_of;     // derived
  std::set<std::pair<Instant, TokenId>> expiring;  // derived: those that do, the first first

  friend bool operator==(const People& one, const People& other) {
    return one.persons == other.persons && one.tokens == other.tokens;
  }
};

// A name of a person: as accounts of Unix are called, so that the two can be the same. Not `admin`, which is
// whoever holds the cluster's own token.
Result<> check_name(std::string_view name);
inline constexpr std::string_view root_name = "admin";

// Sorted, each queue once with the highest role that was given for it; an error if one cannot be given.
Result<std::vector<Grant>> tidy_grants(std::vector<Grant> grants);

void add(People& people, Token token);
void remove_token(People& people, const TokenId& id);
// With his tokens, which are answered.
std::vector<TokenId> remove_person(People& people, const Name& name);
bool has_expired(const Token& token, Instant now);

}  // namespace tutti::people
