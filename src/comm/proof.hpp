// Proof of a secret that is not said: a hash of it and of what the other side has just made up (HMAC-SHA-256,
// RFC 2104). Here and not from a library, because the worker is built with libtorch alone. Pure. Any thread.
#pragma once

#include <string>
#include <string_view>

namespace tutti::comm {

// 32 bytes.
std::string sha256(std::string_view bytes);
std::string keyed_hash(std::string_view key, std::string_view bytes);

// In a time that tells nothing of where they differ.
bool is_same_secret(std::string_view mine, std::string_view told);

// Bytes that nobody has seen before, and nobody can foretell.
std::string fresh_bytes();

// What a rank shows the hub, and the hub a rank: who has not the secret can make neither from the other, nor
// use one again, because each side has made up a part of it.
struct Introduction {
  std::string hubs;   // made up by the hub
  std::string ranks;  // and by the rank
  int rank = 0;
  int size = 0;
  std::string_view node{};
};
std::string proof_of_rank(std::string_view secret, const Introduction& introduction);
std::string proof_of_hub(std::string_view secret, const Introduction& introduction);

}  // namespace tutti::comm
