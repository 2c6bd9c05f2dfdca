#include "control/cluster/views.hpp"

#include <algorithm>
#include <tuple>

namespace tutti::cluster {
namespace {

auto facts_of(const sched::JobView& view) {
  return std::tie(view.id, view.attempt, view.priority, view.submitted_at, view.queued_at, *view.shape,
                  view.grace, view.time_limit, view.served, view.yields, view.started_at, view.saved_at,
                  view.ending, view.ends_by, view.makes_way);
}

}  // namespace

bool same_views(const Views& some, const Views& others) {
  return std::equal(some.begin(), some.end(), others.begin(), others.end(),
                    [](const auto& one, const auto& other) {
                      return one.first == other.first && facts_of(one.second) == facts_of(other.second);
                    });
}

}  // namespace tutti::cluster
