// Is there room for a gang now? Assumes that room only shrinks during a pass: what did not fit once is not
// looked for again, nor is another of the same shape, and the reason is worked out once for all of them. Used
// by one pass.
#pragma once

#include <limits>
#include <optional>
#include <vector>

#include "control/sched/claims.hpp"
#include "control/sched/draft.hpp"

namespace tutti::sched {

// With as many ranks as fit and take no more share than is allowed.
std::optional<Places> place_allowed(const Room& room, const JobView& job, std::int64_t allowed,
                                    const NodeChoice& choice);

// Of so many shapes it is counted what is free for them: all nodes are looked at for each.
constexpr std::size_t shapes_counted_max = 1'000;

class Fitting {
 public:
  // All shape classes are below `shape_classes`.
  Fitting(std::uint32_t shape_classes, const NodeChoice& choice)
      : refusals_(shape_classes), choice_(choice) {}

  // `allowed` is a limit of the job's own, no_limit if there is none.
  std::optional<Places> find(const Claims& claims, const JobView& job, std::int64_t allowed);
  // Why nothing was found.
  Draft::Reason why(const Claims& claims, const JobView& job, Draft& draft);

 private:
  static constexpr std::size_t none = std::numeric_limits<std::size_t>::max();
  // From which of the shape's counts of ranks on nothing fits. A gang that is allowed more may still fit.
  struct Refusal {
    std::size_t free = none;        // into all of the room
    std::size_t unpromised = none;  // into what is not promised
    std::optional<Draft::Reason> why;
    std::optional<Draft::Reason> why_promised;
  };
  std::string describe(const Claims& claims, const JobView& job);
  std::string describe_promised(const Claims& claims, const JobView& job, const Draft& draft);

  std::vector<Refusal> refusals_;  // by shape class
  const NodeChoice& choice_;
  std::size_t shapes_counted_ = 0;
};

}  // namespace tutti::sched
