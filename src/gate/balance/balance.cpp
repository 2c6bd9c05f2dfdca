#include "gate/balance/balance.hpp"

#include <algorithm>
#include <tuple>

#include "base/check.hpp"

namespace tutti::gate {

void Balance::add(BackendId backend) { backends_.try_emplace(backend); }
void Balance::remove(BackendId backend) { backends_.erase(backend); }

std::int64_t Balance::known_tokens(const Backend& backend, const Burden& burden) {
  std::int64_t known = 0;
  for (const std::uint64_t mark : burden.marks) {
    if (!backend.marks.contains(mark)) break;
    ++known;
  }
  if (burden.marks.empty()) return 0;
  // The marks are those of the prompt, as far as they go.
  return burden.prompt_tokens * known / static_cast<std::int64_t>(burden.marks.size() + 1);
}

std::int64_t Balance::weight_of(const Backend& backend, const Burden& burden) {
  return burden.prompt_tokens - known_tokens(backend, burden) +
         prompt_tokens_per_answer_token * burden.answer_tokens;
}

std::optional<BackendId> Balance::choose(std::span<const BackendId> backends, const Burden& burden,
                                         const std::set<BackendId>& but, Instant now) const {
  using Rank = std::tuple<std::int64_t, std::size_t, std::uint64_t>;
  std::optional<BackendId> best;
  Rank best_rank;
  for (const BackendId id : backends) {
    const auto found = backends_.find(id);
    if (found == backends_.end() || but.contains(id) || now < found->second.rests_until) continue;
    const Backend& backend = found->second;
    if (backend.requests >= requests_max_) continue;
    const Rank rank{backend.weight + weight_of(backend, burden), backend.requests, backend.turn};
    if (best && !(rank < best_rank)) continue;
    best = id;
    best_rank = rank;
  }
  return best;
}

std::optional<Instant> Balance::next_rested(std::span<const BackendId> backends) const {
  std::optional<Instant> first;
  for (const BackendId id : backends) {
    const auto found = backends_.find(id);
    if (found == backends_.end() || found->second.failures == 0 || is_full(id)) continue;
    first = std::min(first.value_or(found->second.rests_until), found->second.rests_until);
  }
  return first;
}

std::int64_t Balance::begin(BackendId id, const Burden& burden, Instant now) {
  const auto found = backends_.find(id);
  TUTTI_CHECK(found != backends_.end(), "he was chosen");
  Backend& backend = found->second;
  const std::int64_t weight = weight_of(backend, burden);
  backend.weight += weight;
  ++backend.requests;
  backend.turn = ++turn_;
  // Until it is known whether he is back, one request is enough to find out.
  if (backend.failures > 0) backend.rests_until = now + rest_time_min;
  remember(backend, burden.marks);
  return weight;
}

void Balance::remember(Backend& backend, std::span<const std::uint64_t> marks) {
  for (const std::uint64_t mark : marks) {
    const auto [known, is_new] = backend.marks.try_emplace(mark, 0);
    if (!is_new) backend.by_turn.erase(known->second);
    known->second = ++turn_;
    backend.by_turn.emplace(turn_, mark);
  }
  while (backend.marks.size() > marks_known_max) {
    backend.marks.erase(backend.by_turn.begin()->second);
    backend.by_turn.erase(backend.by_turn.begin());
  }
}

void Balance::end(BackendId id, std::int64_t weight) {
  const auto found = backends_.find(id);
  if (found == backends_.end()) return;  // he has left meanwhile
  found->second.weight -= weight;
  --found->second.requests;
}

void Balance::failed(BackendId id, Instant now) {
  const auto found = backends_.find(id);
  if (found == backends_.end()) return;
  Backend& backend = found->second;
  // Of many requests that fail together each tells of the same end.
  if (backend.failures > 0 && now < backend.rests_until) return;
  const Duration rest = rest_time_min * (1 << std::min(backend.failures, 10));
  backend.rests_until = now + std::min(rest, rest_time_max);
  ++backend.failures;
  // His cache has gone with him.
  backend.marks.clear();
  backend.by_turn.clear();
}

void Balance::worked(BackendId id) {
  const auto found = backends_.find(id);
  if (found == backends_.end()) return;
  found->second.failures = 0;
  found->second.rests_until = {};
}

bool Balance::rests(BackendId id, Instant now) const {
  const auto found = backends_.find(id);
  return found != backends_.end() && now < found->second.rests_until;
}

bool Balance::is_full(BackendId id) const { return requests(id) >= requests_max_; }

std::int64_t Balance::outstanding(BackendId id) const {
  const auto found = backends_.find(id);
  return found == backends_.end() ? 0 : found->second.weight;
}

std::size_t Balance::requests(BackendId id) const {
  const auto found = backends_.find(id);
  return found == backends_.end() ? 0 : found->second.requests;
}

}  // namespace tutti::gate
