#include "control/sched/policies.hpp"

namespace tutti::sched {
namespace {

constexpr std::array<Policy, 5> all{{
    {"tutti", "the default; does not know how long gangs run", schedule_tutti},
    {"fifo", "in the order of arrival, passing over what does not fit", schedule_fifo},
    {"srtf", "the shortest remaining time first; knows how long gangs run", schedule_srtf},
    {"best-fit", "fifo, on the node that is left with the least", schedule_best_fit},
    {"fgd", "fifo, on the node whose fragmentation grows the least", schedule_fgd},
}};

}  // namespace

std::span<const Policy> policies() { return all; }

Result<const Policy*> find_policy(std::string_view name) {
  std::string names;
  for (const Policy& policy : all) {
    if (policy.name == name) return &policy;
    names += (names.empty() ? "" : ", ") + std::string(policy.name);
  }
  return invalid("there is no policy '" + std::string(name) + "'").remedy("the policies are " + names);
}

Plan schedule(const Snapshot& snapshot, Instant now) { return schedule_tutti(snapshot, now); }

}  // namespace tutti::sched
