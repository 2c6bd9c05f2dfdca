// What follows from the jobs and nodes of a state and is needed at every turn: the room that is free, who
// waits, who runs, and what queues and users have had. Derived, never stored, so that a pass over a large
// cluster begins without walking all of it. Owned by the state's loop.
//
// Whoever changes a job or a node says so with changed(), once it is whole again; what each part makes of it
// is the part's affair.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "control/cluster/floor.hpp"
#include "control/cluster/followers.hpp"
#include "control/cluster/habits.hpp"
#include "control/cluster/residents.hpp"
#include "control/cluster/usage.hpp"
#include "control/sched/sched.hpp"

namespace tutti::cluster {

class Index {
 public:
  // Reads everything anew.
  void rebuild(const State& state, Instant now);

  // ---- what it is told
  // What the job was before the index knows.
  void changed(const State& state, const Job& job, Instant now);
  // It takes work, or takes it no more.
  void changed(const Node& node) { floor_.changed(node); }
  // It said what it has; one that is new had no name before.
  void changed(const Node& before, const Node& after) { floor_.changed(before, after); }
  // One that nothing runs on is gone.
  void removed_node() { floor_.removed_node(); }
  void planned(const sched::Plan& plan);
  // The clock was set by so much: what was used is as old as it was.
  void moved(Duration by) { usage_.move(by); }
  // How long the job really will run: only a simulation can tell it.
  void knows(sched::JobId job, Duration remaining);

  // ---- what it answers
  // Changes when shapes and kinds of jobs get other numbers.
  std::uint64_t numbering() const { return habits_.times_forgotten(); }
  const sched::Room& room(const State& state) { return floor_.free(state); }
  // All nodes as if they were empty and all of them there.
  const sched::Room& full_room(const State& state) { return floor_.full(state); }
  // Would the gang fit into that?
  bool ever_fits(const State& state, const sched::Shape& shape) { return floor_.ever_fits(state, shape); }
  // Changes with the numbering of nodes: a plan for another numbering means nothing.
  std::uint64_t generation() const { return floor_.generation(); }
  const std::set<sched::JobId>& jobs_on(const std::string& node) const { return residents_.jobs_on(node); }
  // The job's ranks on that node.
  RankRun ranks_on(const std::string& node, sched::JobId job) const { return residents_.ranks_on(node, job); }
  // Waiting jobs that will never start, with the job whose success they need.
  const std::map<sched::JobId, sched::JobId>& doomed() const { return followers_.doomed(); }
  // Jobs that wait for others to end.
  const std::map<sched::JobId, Followers::Wait>& waits() const { return followers_.waits(); }
  // For how many others the unfinished jobs of each user wait.
  const Shares& dependencies() const { return followers_.dependencies(); }
  bool port_taken(const std::string& address, std::int32_t port) const {
    return residents_.port_taken(address, port);
  }
  // Of so many users, what does not weigh any more is forgotten.
  void forget_use(Instant now, std::size_t users) { usage_.forget_some(now, users); }
  std::size_t users_remembered() const { return usage_.users(); }
  // Of a queue with those below it.
  Usage::Use use_of_queue(const std::string& queue, Instant now) const { return usage_.of_queue(queue, now); }
  Usage::Use use_of_user(const std::string& queue, const std::string& user, Instant now) const {
    return usage_.of_user(queue, user, now);
  }
  std::vector<std::pair<std::string, Usage::Use>> users_of_queue(const std::string& queue,
                                                                 Instant now) const {
    return usage_.users_of_queue(queue, now);
  }

  // ---- what the last plan said
  // When the scheduler wants to be asked again although nothing has happened.
  Instant wake() const { return said_.wake; }
  const std::string* why_waiting(sched::JobId job) const { return said_.waiting->find(job); }

  // snapshot.cpp
  sched::Snapshot snapshot(const State& state, Instant now);
  // The job as the scheduler would see it, without its having been submitted: nothing is learned from it.
  sched::JobView view_of(const Job& job) const { return habits_.view_of(job); }

  // Does it say the same as one that reads the state anew? For the invariants: it takes its time.
  Result<> check(const State& state) const;

 private:
  struct Said {
    std::shared_ptr<const sched::Waiting> waiting = std::make_shared<const sched::Waiting>();
    Instant wake = sched::never;
  };

  Phase phase_known(sched::JobId job) const;
  void tell(const Change& change);
  void forget_old_shapes(const State& state);

  Habits habits_;
  Usage usage_;
  Residents residents_;
  Followers followers_;
  Views waiting_;
  Floor floor_;
  Said said_;
};

}  // namespace tutti::cluster
