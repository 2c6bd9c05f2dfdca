// Whose fault it was, and what follows from that. What a node could not do is the node's fault: it is set
// aside for a while and tried again. What goes on failing waits longer each time, and a gang in whose
// attempts nodes are lost again and again is held for a person to look at. A value: owned by the state's
// loop.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/time.hpp"
#include "control/sched/sched.hpp"

namespace tutti::cluster {

struct State;
struct Job;
using sched::NodeName;

// ---- nodes

// A node that could not start ranks of so many attempts in a row is set aside; after it was tried again, one
// is enough.
constexpr std::int32_t node_faults_max = 3;
constexpr Duration set_aside_first = std::chrono::minutes(1);
constexpr Duration set_aside_max = std::chrono::hours(1);

// A black hole takes job after job and fails each at once: so many in a row within this time, of kinds that
// work elsewhere more often than not, and not of one user alone, who could have them fail there on purpose
// (where there is one user only, of two kinds). Of all nodes at most this part is set aside for that, or one.
constexpr Duration quick_failure = 10s;
constexpr std::size_t black_hole_failures = 8;
constexpr std::size_t black_hole_part = 10;

// ---- jobs

// The first restart comes at once, because one loss is bad luck; each further one in a row waits twice as
// long as the one before: a start costs others something, and a large gang that fails every few seconds would
// cost them much.
constexpr Duration restart_pause_first = 1s;
constexpr Duration restart_pause_max = std::chrono::minutes(5);
// An attempt of this length was no bad start, nor was one that has saved something: what comes after it
// counts from the beginning.
constexpr Duration stable_attempt = std::chrono::minutes(10);
// A gang is held when so many attempts in a row, each shorter than that, lost so many nodes altogether.
constexpr std::int32_t deadly_attempts_max = 2;
constexpr std::int32_t deadly_nodes_max = 3;

// So is one whose kind so many nodes could not start in so many attempts, if those nodes could not start that
// kind alone: then it is not the nodes, and they come back.

// A node that had no room for a job, or lacked what it has saved, is passed over until it says Hello or so
// much time has gone by since the last such node was found: somebody may have made room, or mounted a disk.
// Longer than the longest pause, so that a job comes to try all nodes.
constexpr Duration no_room_kept = std::chrono::minutes(10);
static_assert(no_room_kept > restart_pause_max);

// How long a job waits after so many bad ends in a row.
Duration restart_pause(std::int32_t bad_ends);
// It waits for its time. Once that has come it is not put off again, wherever the clock is set.
bool is_paused(const State& state, const Job& job);

// How jobs of one kind fared on the nodes lately: what tells a black hole from a program that is wrong. Not
// stored: after a restart of the controller it is learnt anew.
class Blame {
 public:
  // A rank of the job failed there by itself, soon after its start.
  void failed_quickly(const NodeName& node, const Job& job);
  // It ended well on these, or ran for a while.
  void worked(const Job& job, const std::set<NodeName>& nodes);
  // What the node did is not held against it any more.
  void forget(const NodeName& node);

  // The node could not start a rank of the job. True if that counts against the node: once for each attempt,
  // and not if nobody can start that kind of job.
  bool could_not_start(const NodeName& node, const Job& job);
  void was_set_aside(const NodeName& node) { rows_[node].set_aside = true; }
  // It starts ranks.
  void can_start(const NodeName& node) { rows_.erase(node); }
  // The job runs, or somebody wants to see it tried again.
  void forget_refusals(const Job& job);
  struct Innocent {
    NodeName node;
    bool set_aside = false;
  };
  // The nodes that could not start jobs of this kind and nothing else, if they are so many that it is the
  // job.
  std::vector<Innocent> innocent_of(const Job& job) const;

  std::vector<NodeName> black_holes(const State& state, Instant now) const;

 private:
  struct Tally {
    std::int64_t worked = 0;
    std::int64_t failed = 0;
  };
  using ByNode = std::map<NodeName, Tally>;
  using Attempt = std::pair<sched::JobId, std::int32_t>;
  // What a node could not start, in a row.
  struct Row {
    std::set<std::string> kinds;  // two are as good as many
    Attempt last;
    bool set_aside = false;
  };
  // Who could not start a kind of job since it ran the last time.
  struct Refusals {
    std::set<NodeName> nodes;
    std::int32_t attempts = 0;
    Attempt last;
  };

  Tally& tally_of(const std::string& kind, const NodeName& node);
  bool works_elsewhere(const std::string& kind, const NodeName& node,
                       const std::map<std::string, ByNode>& running) const;

  std::map<std::string, ByNode> kinds_;
  struct Failure {
    std::string kind;
    std::string user;
  };
  // From more than one side: not of what one user does there, if there are others.
  static bool agree(const std::vector<Failure>& row, bool one_user_only);
  void note_user(const Job& job);

  std::map<NodeName, std::vector<Failure>> failures_;  // in a row
  std::set<std::string> users_;                        // whose jobs have ended; two are as good as many
  std::map<NodeName, Row> rows_;
  std::map<std::string, Refusals> refusals_;  // by kind
};

}  // namespace tutti::cluster
