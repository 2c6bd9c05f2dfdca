// Who may be a node: tokens that are good for one certificate, and the nodes that have got one. Plain data,
// owned by the state's loop.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/time.hpp"
#include "control/sched/sched.hpp"

namespace tutti::cluster {

constexpr std::size_t join_tokens_max = 1'000;
constexpr std::size_t members_max = 100'000;
constexpr std::int32_t join_token_uses_max = 100'000;
constexpr Duration join_token_life_max = 30 * 24h;
constexpr std::size_t name_pattern_bytes_max = 253;
// What nobody can use any more is kept for so long, so that whoever tries hears why; and so much of it is
// looked at in one step.
constexpr Duration join_tokens_kept = 24h;
constexpr Duration members_kept = 7 * 24h;
constexpr Duration presence_noted_every = 15min;
constexpr std::size_t members_looked_at_per_step_max = 1'000;

struct JoinToken {
  std::string id;            // for people: it opens nothing
  std::string hash;          // of what opens, which nobody keeps (SHA-256 in hexadecimal)
  std::string name_pattern;  // of the nodes that it is for; "": any
  std::int32_t uses_left = 1;
  Instant made_at;
  Instant expires_at;

  friend bool operator==(const JoinToken&, const JoinToken&) = default;
};

// A node that has a certificate. One with another key, or of a name that is not here, is none of ours,
// whoever has signed it.
struct Member {
  sched::NodeName name;
  std::string key;        // SHA-256 of it
  std::string identity;   // of the agent's folder
  std::string serial;     // of its newest certificate
  std::string authority;  // that has signed it: the fingerprint
  std::string token;      // the id of the one that it has joined with
  Instant signed_at;
  Instant until;
  bool revoked = false;
  bool knows_next = false;  // it has stored the authority that comes next, as one to trust
  std::string held = {};    // the authority of the newest of its certificates that it has shown

  friend bool operator==(const Member&, const Member&) = default;
};

// When no controller was there: before the one that is there now.
struct Absence {
  Instant from;
  Instant to;
};

// '*' stands for any letters, '?' for one.
bool matches(std::string_view pattern, std::string_view name);

}  // namespace tutti::cluster
