// What runs, where, and what that leaves free: the room is always all nodes less the places of what runs. The
// numbers of places are those of the room; when nodes change they are worked out anew, at the next question.
// A part of the index.
#pragma once

#include "control/cluster/change.hpp"
#include "control/cluster/habits.hpp"
#include "control/cluster/views.hpp"
#include "control/sched/sched.hpp"

namespace tutti::cluster {

struct Node;

class Floor {
 public:
  void changed(const Change& change, Habits& habits);
  // It takes work, or takes it no more.
  void changed(const Node& node);
  // It said what it has; one that is new had no name before.
  void changed(const Node& before, const Node& after);

  // The numbers of the others change.
  void removed_node();

  const sched::Room& free(const State& state);
  // All nodes as if they were empty and all of them there.
  const sched::Room& full(const State& state);
  // Would the gang fit into all of them? The answer is kept until a node says that it has something else.
  bool ever_fits(const State& state, const sched::Shape& shape);
  // How often that was worked out.
  std::uint64_t searches() const { return searches_; }
  Views& running(const State& state);
  const Views& running() const { return running_; }  // without their places
  bool runs(sched::JobId job) const { return running_.contains(job); }
  // Changes with the numbering of nodes.
  std::uint64_t generation() const { return generation_; }

  // Does it say the same as one that was read from the state anew?
  Result<> check(const State& state, Floor fresh) const;

 private:
  void refresh(const State& state);

  bool stale_ = true;  // the rooms and the places of what runs
  std::uint64_t generation_ = 0;
  sched::Room free_;
  sched::Room full_;
  std::map<sched::Shape, bool, sched::ShapeOrder> ever_fits_;
  std::uint64_t searches_ = 0;
  Views running_;
};

}  // namespace tutti::cluster
