#include "node/agent/rank_names.hpp"

#include <array>
#include <cstdint>

#include "base/id.hpp"
#include "base/text.hpp"

namespace tutti::agent {

using keeper::RankKey;

std::optional<RankKey> parse_key(const std::string& name) {
  const auto parts = split(name, '.');
  if (parts.size() != 3) return std::nullopt;
  std::array<std::uint64_t, 3> numbers{};
  for (std::size_t at = 0; at < 3; ++at) {
    const auto parsed = parse_id_number(parts[at]);
    if (!parsed) return std::nullopt;
    numbers[at] = *parsed;
  }
  return RankKey{cluster::JobId(numbers[0]), static_cast<std::int32_t>(numbers[1]),
                 static_cast<std::int32_t>(numbers[2])};
}

std::string attempt_name(cluster::JobId job, std::int32_t attempt) {
  return job.text() + "." + std::to_string(attempt);
}

std::string owner_of(const RankKey& key) { return "rank " + key.text(); }
std::string owner_of(cluster::JobId job) { return "job " + job.text(); }

}  // namespace tutti::agent
