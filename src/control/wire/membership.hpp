// Tokens for new nodes, and the nodes that have joined with them: as the store keeps them, as the API shows
// them, and what is asked and answered when a server joins: both ends of it. Pure functions: any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "control/cluster/model.hpp"

namespace tutti::wire {

constexpr std::size_t join_token_bytes_max = 256;

// ---- the store; the keys and encode() are in objects.hpp

bool is_of_membership(std::string_view key);
// False if it is damaged.
bool decode_membership(cluster::State& state, std::string_view key, std::string_view bytes);

// ---- an admin makes a token

struct JoinTokenWish {
  std::int32_t uses = 1;
  Duration life = 1h;
  std::string name_pattern = {};
};
std::string encode(const JoinTokenWish& wish);
Result<JoinTokenWish> decode_join_token_wish(std::string_view json);

struct MadeJoinToken {
  std::string id;
  std::string token;
  std::string address;
  std::string authority;  // its fingerprint
  Instant expires_at;
  std::int32_t uses = 1;
};
std::string made_join_token_json(const MadeJoinToken& made);

std::string join_tokens_json(const cluster::State& state, Instant now);

// ---- one authority follows another

struct AuthorityStanding {
  std::string signer;                    // fingerprints
  Instant until = {};                    // of the one that signs
  std::string next = {};                 // that is to follow; "": none
  std::string old = {};                  // that was before; "": none
  std::vector<std::string> behind = {};  // nodes that the next step waits for
};
std::string authority_json(const AuthorityStanding& standing);
// Whether the old one is to be dropped.
Result<bool> decode_rotation(std::string_view json);

// ---- a server joins, and a node renews

struct JoinRequest {
  std::string token = {};  // "" of a node that renews
  std::string name = {};
  std::string identity = {};
  std::string request = {};
  Instant date = {};                      // by its own clock
  std::vector<std::string> trusted = {};  // of a node that renews: the authorities that are on its disk
};
std::string encode(const JoinRequest& request);
Result<JoinRequest> decode_join(std::string_view json);
std::string encode_renewal(const JoinRequest& request);
Result<JoinRequest> decode_renewal(std::string_view json);

struct JoinReply {
  std::string name;
  std::string certificate;
  std::string authorities;
  bool again = false;  // it is to be shown soon that this has been stored
};
std::string encode(const JoinReply& reply);
Result<JoinReply> decode_join_reply(std::string_view json);

}  // namespace tutti::wire
