// What follows from the jobs and nodes of a state and is needed at every turn: the room that is free, who
// waits, who runs, and what queues and users have had. Derived, never stored; the machine keeps it in step,
// so that a pass over a large cluster begins without walking all of it. Owned by the state's loop.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "control/sched/sched.hpp"

namespace tutti::cluster {

struct State;
struct Job;
struct Node;

// What was used lately counts less and less: half as much after so long.
constexpr Duration usage_half_life = 7 * 24h;

class Index {
 public:
  // Reads everything anew.
  void rebuild(const State& state, Instant now);

  // ---- what the machine tells it
  void waits(const Job& job);  // submitted, or back in the queue
  void starts(const Job& job, const std::string& address);
  void releases(const Job& job, Instant now);  // before the places are given up
  void finishes(const Job& job, Instant now);
  void saved(const Job& job);
  void ends(const Job& job);
  void nodes_changed() { stale_ = true; }  // one is new, or has other devices, or stands elsewhere
  void opens(const Node& node);            // it takes work, or takes it no more
  void planned(const sched::Plan& plan);
  // How long the job really will run: only a simulation can tell it.
  void knows(sched::JobId job, Duration remaining);

  // ---- what it answers
  // The free room; what nodes_changed() announced is read first.
  const sched::Room& room(const State& state);
  // All nodes as if they were empty and all of them there.
  const sched::Room& full_room(const State& state);
  // Changes with the numbering of nodes: a plan for another numbering means nothing.
  std::uint64_t generation() const { return generation_; }
  const std::set<sched::JobId>& jobs_on(const std::string& node) const;
  bool port_taken(const std::string& address, std::int32_t port) const;
  // When the scheduler wants to be asked again although nothing has happened.
  Instant wake() const { return wake_; }
  const std::string* why_waiting(sched::JobId job) const { return waiting_->find(job); }
  const sched::Promise* promise(sched::JobId job) const;

  struct Use {
    std::int64_t in_use = 0;
    double past = 0;  // on average, lately
  };
  // Of a queue with those below it.
  Use use_of_queue(const std::string& queue, Instant now) const;
  std::vector<std::pair<std::string, Use>> users_of_queue(const std::string& queue, Instant now) const;
  // How long jobs of this user usually take; 0 if none has ended.
  Duration usual(const std::string& user) const;

  // Does it say the same as one that reads the state anew? For the invariants: it takes its time.
  Result<> check(const State& state) const;

  sched::Snapshot snapshot(const State& state, Instant now);
  // The job as the scheduler would see it, without its having been submitted.
  sched::JobView view_of(const State& state, const Job& job);

 private:
  struct Used {  // device-seconds, decaying
    double amount = 0;
    Instant at;
    std::int64_t in_use = 0;

    void add(double more, Instant now);
    double average(Instant now) const;
  };
  struct UserKey {
    std::string queue;
    std::string user;
    friend auto operator<=>(const UserKey&, const UserKey&) = default;
  };
  struct KindKey {
    UserKey user;
    std::uint32_t shape_class = 0;
    friend auto operator<=>(const KindKey&, const KindKey&) = default;
  };
  struct ShapeClass {
    std::shared_ptr<const sched::Shape> shape;
    std::uint32_t number = 0;
    double seen = 0;
  };

  void refresh(const State& state);
  ShapeClass& intern(const sched::Shape& shape);
  std::uint32_t kind_of(const Job& job);
  void fill(const Job& job, sched::JobView& view);
  void count_nodes(const Job& job, bool there);
  void use(const Job& job, std::int64_t share);
  void refresh_mix();

  bool stale_ = true;
  std::uint64_t generation_ = 0;
  sched::Room room_;
  sched::Room full_;
  std::map<sched::JobId, sched::JobView> waiting_jobs_;
  std::map<sched::JobId, sched::JobView> running_;
  std::map<std::string, std::set<sched::JobId>> on_node_;
  std::map<sched::JobId, std::pair<std::string, std::int32_t>> ports_;        // address and port of rank 0
  std::map<std::pair<std::string, std::int32_t>, std::int32_t> ports_taken_;  // by how many
  std::map<std::string, Used> queues_;                                        // with the queues below
  std::map<UserKey, Used> users_;
  std::map<std::string, double> usual_s_;  // by user
  std::map<sched::JobId, Duration> remaining_;
  std::map<sched::Shape, ShapeClass, sched::ShapeOrder> shapes_;
  std::map<KindKey, std::uint32_t> kinds_;
  sched::Past past_;
  double seen_ = 0;
  double seen_at_mix_ = 0;
  std::shared_ptr<const sched::Mix> mix_;
  std::shared_ptr<const sched::Waiting> waiting_ = std::make_shared<const sched::Waiting>();
  std::vector<sched::Promise> promises_;
  Instant wake_ = sched::never;
};

}  // namespace tutti::cluster
