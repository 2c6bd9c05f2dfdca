// Who of several that answer alike gets the next request: whoever has least to do before he can begin with
// it, counted in tokens. What he has in his cache already, because he was asked something that began alike
// lately, is nothing to do. Whoever failed is left alone for a while, each time for longer. Pure: time is an
// argument; one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "base/id.hpp"
#include "base/time.hpp"

namespace tutti::gate {

using BackendId = Id<struct BackendTag>;

// Of each backend; what was seen longest ago goes first.
inline constexpr std::size_t marks_known_max = 16'384;
// A token that is generated takes as long as so many of a prompt, which are computed together. Not measured:
// on the devices of docs/measured.md it lies between 10 and 60, and beside others less.
inline constexpr std::int64_t prompt_tokens_per_answer_token = 8;
// Of one backend at once. An engine gives one address half of its 2,048 connections and closes what is beyond
// (serve/server/front): some of them are for those who look at it, and for what is just being closed.
inline constexpr std::size_t requests_per_backend_max = 900;
inline constexpr Duration rest_time_min = 250ms;
inline constexpr Duration rest_time_max = 30s;

// What a request is in tokens, and how it begins (gate/ask).
struct Burden {
  std::int64_t prompt_tokens = 0;
  std::int64_t answer_tokens = 0;
  std::span<const std::uint64_t> marks = {};
};

class Balance {
 public:
  explicit Balance(std::size_t requests_max = requests_per_backend_max) : requests_max_(requests_max) {}

  void add(BackendId backend);
  void remove(BackendId backend);

  // Of these the best, but for those that rest, are full and those in `but`; nobody if none is left.
  std::optional<BackendId> choose(std::span<const BackendId> backends, const Burden& burden,
                                  const std::set<BackendId>& but, Instant now) const;
  // When the first of them has rested that is not full; nothing if none rests.
  std::optional<Instant> next_rested(std::span<const BackendId> backends) const;

  // He has the request from now on. What is returned is what it weighs, for end().
  std::int64_t begin(BackendId backend, const Burden& burden, Instant now);
  void end(BackendId backend, std::int64_t weight);

  // He could not be reached, or broke off.
  void failed(BackendId backend, Instant now);
  // He has answered.
  void worked(BackendId backend);
  bool rests(BackendId backend, Instant now) const;
  // He has as many requests as he may.
  bool is_full(BackendId backend) const;

  std::int64_t outstanding(BackendId backend) const;  // what he has to do
  std::size_t requests(BackendId backend) const;

 private:
  struct Backend {
    std::int64_t weight = 0;
    std::size_t requests = 0;
    std::uint64_t turn = 0;  // when he was chosen last
    int failures = 0;        // in a row
    Instant rests_until;
    std::map<std::uint64_t, std::uint64_t> marks;    // and in whose turn each was seen last
    std::map<std::uint64_t, std::uint64_t> by_turn;  // the same the other way round
  };
  static std::int64_t known_tokens(const Backend& backend, const Burden& burden);
  static std::int64_t weight_of(const Backend& backend, const Burden& burden);
  void remember(Backend& backend, std::span<const std::uint64_t> marks);

  const std::size_t requests_max_;
  std::map<BackendId, Backend> backends_;
  std::uint64_t turn_ = 0;
};

}  // namespace tutti::gate
