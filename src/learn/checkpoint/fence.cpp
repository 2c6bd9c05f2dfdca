#include "learn/checkpoint/fence.hpp"

#include <charconv>
#include <tuple>

namespace tutti::checkpoint {
namespace {

// Takes a word off the front of the line.
std::string_view take_word(std::string_view& line) {
  const std::string_view word = line.substr(0, line.find(' '));
  line.remove_prefix(word.size());
  if (!line.empty()) line.remove_prefix(1);
  return word;
}

bool take_count(std::string_view& line, std::int64_t& count) {
  const std::string_view word = take_word(line);
  const auto parsed = std::from_chars(word.data(), word.data() + word.size(), count);
  return parsed.ec == std::errc() && parsed.ptr == word.data() + word.size() && count >= 0;
}

}  // namespace

std::string Fence::text() const {
  const std::string number = "attempt " + std::to_string(attempt);
  return job == 0 ? number : "job " + std::to_string(job) + ", " + number;
}

std::string Fence::line() const {
  std::string words = std::to_string(attempt);
  if (job != 0 || !cluster.empty()) words += " " + std::to_string(job);
  if (!cluster.empty()) words += " " + cluster;
  return words;
}

std::optional<Fence> Fence::parse(std::string_view line) {
  Fence fence;
  if (!take_count(line, fence.attempt)) return std::nullopt;
  if (!line.empty() && !take_count(line, fence.job)) return std::nullopt;
  fence.cluster = std::string(line);
  return fence;
}

bool same_cluster(const Fence& a, const Fence& b) { return a.cluster == b.cluster; }
bool same_job(const Fence& a, const Fence& b) {
  return a.job == b.job && (same_cluster(a, b) || a.cluster.empty() || b.cluster.empty());
}
bool is_newer(const Fence& a, const Fence& b) {
  if (a.cluster.empty() != b.cluster.empty()) return b.cluster.empty();
  return same_cluster(a, b) && std::tie(a.job, a.attempt) > std::tie(b.job, b.attempt);
}
bool passes_over(const std::optional<Fence>& over, const Fence& other) {
  return over && over->job != 0 && same_job(*over, other);
}

}  // namespace tutti::checkpoint
