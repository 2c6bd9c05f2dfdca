// Secrets as the state machine knows them: whose they are, what they are called, how large they are, and what
// is sealed of them. No value is ever here: it is sealed before it comes, and opened by whoever tells a node
// to start ranks (driver/outbox). Values and pure functions.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/time.hpp"

namespace tutti::cluster {

struct JobSpec;
struct SetSecret;
struct State;

constexpr std::size_t secret_name_bytes_max = 64;
constexpr std::size_t secret_bytes_max = 64 << 10;
// What sealing adds is far less.
constexpr std::size_t sealed_bytes_max = secret_bytes_max + 256;
constexpr std::size_t secret_key_id_bytes_max = 64;
// All of them are in memory: so many, of so many bytes. One is a person, or a queue that is part of no other
// with all its parts: whoever makes parts gets no more room by that.
constexpr std::size_t secrets_of_one_max = 1'000;
constexpr std::size_t secrets_max = 10'000;
constexpr std::size_t secrets_bytes_of_one_max = 8 << 20;
constexpr std::size_t secrets_bytes_max = 64 << 20;
// Of all, who is no admin sets none beyond so many, and so many bytes.
constexpr std::size_t secrets_set_by_others_max = secrets_max / 2;
constexpr std::size_t secrets_bytes_set_by_others_max = secrets_bytes_max / 2;
constexpr std::size_t job_secrets_max = 32;
constexpr std::size_t job_secrets_bytes_max = 256 << 10;
// Of one SecretsRewrapped: a turn is not to be long.
constexpr std::size_t rewrapped_max = 100;
constexpr std::size_t rewrapped_bytes_max = 1 << 20;

struct SecretId {
  // Those of services are made and given by the cluster alone: nobody lists, sets or removes them.
  enum class Of { person, queue, service };
  Of of = Of::person;
  std::string owner;  // the name of that person, queue or service
  std::string name;

  friend auto operator<=>(const SecretId&, const SecretId&) = default;
};
// "TOKEN of ada", "TOKEN of the queue research"
std::string text_of(const SecretId& id);

struct Secret {
  SecretId id;
  std::string key;         // the id of the key that it is sealed under
  std::string sealed;      // bound to this id
  std::int32_t bytes = 0;  // of the value
  Instant changed_at;
  std::string changed_by;

  friend bool operator==(const Secret&, const Secret&) = default;
};

// Letters, digits, '_', '.' and '-', a letter or a digit first: it becomes the name of a file.
Result<> check_secret_name(std::string_view name);
// What a job asks for: each once.
Result<> check_secret_names(const std::vector<std::string>& names);

// Whether there is room for it beside what is kept for admins. One that replaces a larger one takes none.
bool leaves_room(const State& state, const SetSecret& event);

// What the job asks for, in its order: of its user, else of its queue, else of the queues above that; and of
// a replica the key of its service. Or why it cannot start: they are not there, or not for him, or he is
// blocked.
Result<std::vector<const Secret*>> secrets_of(const State& state, const JobSpec& spec);

}  // namespace tutti::cluster
