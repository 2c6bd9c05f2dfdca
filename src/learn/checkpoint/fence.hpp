// Who writes into a run's folder: an attempt of a job of a cluster. Ids of jobs never come back within a
// cluster, so that of two writers of one cluster the newer one is known. Values, any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tutti::checkpoint {

struct Fence {
  std::int64_t attempt = 0;
  std::int64_t job = 0;  // 0: ranks that nobody submitted
  std::string cluster;   // "": not known, which ranks of earlier versions did not

  Fence() = default;
  // Implicit on purpose: an attempt alone is a fence too.
  Fence(std::int64_t of_attempt, std::int64_t of_job = 0, std::string of_cluster = "")
      : attempt(of_attempt), job(of_job), cluster(std::move(of_cluster)) {}

  // "attempt 2", "job 12, attempt 2".
  std::string text() const;
  // One line of a file, and back; nothing from what is none.
  std::string line() const;
  static std::optional<Fence> parse(std::string_view line);

  friend bool operator==(const Fence&, const Fence&) = default;
};

bool same_cluster(const Fence& a, const Fence& b);
// So it is if one of the two does not know its cluster: a job lives on while its cluster is renewed.
bool same_job(const Fence& a, const Fence& b);
// Of two of one cluster: a later job, or a later attempt of the same. Who knows its cluster comes after who
// does not.
bool is_newer(const Fence& a, const Fence& b);
// Whether who may pass over `over`, if over anybody, may do so with this one: any attempt of that job.
bool passes_over(const std::optional<Fence>& over, const Fence& other);

}  // namespace tutti::checkpoint
