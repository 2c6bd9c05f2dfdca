// Room for a large gang in one piece: there is enough of it, and smaller gangs that stand in between go
// elsewhere. Assumes that a node is cleared as a whole, that those with the least on them are cleared first,
// and that all who leave have room elsewhere at once, of what is promised to nobody. It only looks. Used by
// one pass.
#pragma once

#include <optional>
#include <vector>

#include "control/sched/claims.hpp"
#include "control/sched/rules.hpp"
#include "control/sched/way.hpp"

namespace tutti::sched {

class Moving {
 public:
  Moving(const Snapshot& snapshot, const Rules& rules) : snapshot_(snapshot), rules_(rules) {}

  std::optional<Way> find(Claims& claims, const Shares& shares, const JobView& job);

 private:
  // A node on which all that runs could as well run elsewhere.
  struct Clearing {
    double devices = 0;  // in use
    std::vector<const JobView*> gangs;
    bool fixed = false;  // something there stays
  };
  const std::vector<Clearing>& clearings();
  bool may_move(const Clearing& clearing, const Claims& claims, const Shares& shares,
                const JobView& job) const;
  // Is there room elsewhere for all of them, beside the job?
  bool all_fit(const Way& way, const Claims& claims, const JobView& job) const;

  const Snapshot& snapshot_;
  const Rules& rules_;
  std::optional<std::vector<Clearing>> clearings_;  // those with the least to move first
};

}  // namespace tutti::sched
