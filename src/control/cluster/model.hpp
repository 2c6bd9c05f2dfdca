// The cluster as plain data: what is durable, and what follows from it. Owned by one loop at a time.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/time.hpp"
#include "base/units.hpp"
#include "control/cluster/audit_log.hpp"
#include "control/cluster/blame.hpp"
#include "control/cluster/fabric.hpp"
#include "control/cluster/index.hpp"
#include "control/cluster/job_bytes.hpp"
#include "control/cluster/job_spec.hpp"
#include "control/cluster/limits.hpp"
#include "control/cluster/membership.hpp"
#include "control/cluster/retention.hpp"
#include "control/cluster/secrets.hpp"
#include "control/cluster/services.hpp"
#include "control/cluster/shared.hpp"
#include "control/cluster/shares.hpp"
#include "control/cluster/submit_keys.hpp"
#include "control/people/people.hpp"
#include "control/sched/sched.hpp"

namespace tutti::cluster {

using sched::RankPlace;

constexpr std::size_t unfinished_jobs_max = 200'000;  // of all users, who share it
constexpr std::int32_t ranks_max = 100'000;
constexpr std::int32_t array_elements_max = 10'000;
// Of all unfinished jobs together, shared by their users: who waits for whom is kept, and followed when one
// of them ends.
constexpr std::size_t dependencies_total_max = 1'000'000;
// What the ranks of one job have to say, all of them together; what comes later is left out.
constexpr std::size_t job_details_bytes_max = 64 << 10;

// ---- nodes

struct Device {
  std::string model;
  Bytes memory;
  std::string uuid;
  std::int32_t numa = -1;  // the NUMA node of the host that it is attached to, -1 if unknown
  bool silent = false;     // it does not answer: it keeps its index, and nothing is placed on it

  friend bool operator==(const Device&, const Device&) = default;
};

// How the name of a device begins that is not there (agent --fake-gpus).
constexpr std::string_view fake_uuid_prefix = "FAKE-";

struct Inventory {
  std::vector<Device> devices;
  std::int32_t cpus = 0;
  Bytes memory;
  std::int32_t watch_max = 0;  // ranks that its agent can watch, each gang counting as one more; 0: not known

  friend bool operator==(const Inventory&, const Inventory&) = default;
};

enum class NodeState { ready, draining, drained, lost };

// A rank that runs on a node or may still start there, and should not: its attempt was given up while the
// node could not be reached. It uses its devices until the node has told its end.
struct Stray {
  JobId job;
  std::int32_t attempt = 0;
  std::int32_t rank = 0;

  friend auto operator<=>(const Stray&, const Stray&) = default;
};
constexpr std::size_t strays_max = 100'000;  // of one node: an agent may invent ranks, but not without end

// What an agent keeps of what is over, as it was started. An age of 0 is for ever.
struct NodeKeeps {
  Bytes logs_max;
  std::size_t logs_ranks_max = 0;  // 0: an agent of an earlier version, which does not say
  Duration logs_age_max{};
  Duration checkpoints_age_max{};  // since the end of their job

  friend bool operator==(const NodeKeeps&, const NodeKeeps&) = default;
};

struct Node {
  NodeName name;
  std::string location;
  std::string address;  // where other nodes reach it: MASTER_ADDR of gangs whose rank 0 is here
  std::int64_t agent_pid = 0;
  Inventory inventory;
  bool draining = false;  // asked for by a person; stays over a loss
  bool lost = false;
  Instant lost_at;                   // zero if it is not lost
  std::string fault;                 // why the cluster has set it aside by itself; "": it has not
  std::int32_t faults = 0;           // starts in a row that it could not make
  std::int32_t times_set_aside = 0;  // since a job last ended well on it
  Instant back_at;                   // one that was set aside is tried again then
  std::string identity = {};         // of its agent's folder: who may speak for the name

  // Not durable: after a restart of the controller each node gets a full lease to be heard, and says anew
  // what runs on it.
  Instant heard_at;
  // When it was last heard to say nothing new of its ranks: those that had started ran then. Zero: never. A
  // lease that begins anew is no word of the node and does not move it.
  Instant vouched_at;
  bool greeted = false;  // it has said Hello since the state was loaded
  // It was known when that was, and has not told yet what its disk for checkpoints remembers.
  bool reunited = false;
  bool doubted = false;  // fell silent with many others: it has one more lease
  Instant asked_at;      // for all that it runs, and has not answered yet; zero: it was not
  Instant told_as_of;    // the last time that it was asked and has answered since; zero: never
  std::set<Stray> strays;
  std::string illness;              // what its agent says keeps it from taking work; "": nothing
  std::string lacks;                // what of keeping ranks apart it cannot do; "": nothing
  std::vector<std::int32_t> ports;  // that its agent keeps free for gangs whose rank 0 is here
  Bytes kept;                       // what ranks that have ended left there, as it said last
  std::optional<NodeKeeps> keeps;   // until when; nothing: it has not said so

  friend bool operator==(const Node&, const Node&) = default;
};

// ---- jobs

enum class JobState { queued, starting, running, restarting, succeeded, failed, cancelled };

enum class RankState { assigned, started, exited };

// Had anybody told it to end when it did? Who was not there, and agents of earlier versions, do not know.
enum class Told { unknown, no, yes };

struct RankStatus {
  RankState state = RankState::assigned;
  std::int32_t exit_code = 0;  // 128 + signal for a signal, as in a shell
  std::string detail;          // why it could not start, or the last lines of its log if it failed
  bool vanished = false;       // with its node, or without a trace: not the program's fault
  Instant saved_at;            // when something in its checkpoint folder last changed; zero: not known
  bool node_fault = false;     // it could not be started: the node's fault, not the program's
  bool stopped = false;        // its node was shut down as planned, and it with it
  Told told = Told::unknown;   // of one that has exited
  bool no_room = false;  // with node_fault: the node is well and cannot start this job: what that ships does
                         // not fit there, or what it has saved is not there
  bool blameless = false;   // with node_fault: what was missing is no fault of the node's either
  bool by_signal = false;   // that ended it: exit_code is 128 + its number
  bool no_program = false;  // its command is not on the node or may not be run there: nothing of it has run

  friend bool operator==(const RankStatus&, const RankStatus&) = default;
};

// Why an attempt is being ended, and so what comes after it.
enum class EndCause {
  none,
  cancelled,
  rank_failed,
  node_lost,
  time_limit,
  drained,
  preempted,
  node_fault,
  killed,    // cancelled without the grace period
  stopped,   // its nodes were shut down as planned, or told its ranks to end for a reason that is not stored
  withheld,  // what it asked for could not be given to it: it is held
};

struct Job {
  JobId id;
  JobSpec spec;
  JobState state = JobState::queued;
  std::int32_t attempt = 0;
  std::int32_t attempt_told =
      -1;                        // the highest that a node has told of and this store did not know; -1: none
  std::int32_t losses = 0;       // attempts that ended with a lost node
  std::int32_t failures = 0;     // attempts that ended with a failure of the program
  std::int32_t preemptions = 0;  // attempts that ended for the sake of others, or to grow
  double served = 0;             // device-seconds of earlier attempts
  Instant submitted_at;
  Instant queued_at;   // when it came into the queue, or came back
  Instant started_at;  // of the running attempt; zero before
  Instant running_at;  // since when all its ranks run; zero before
  // The first rank of it that was heard to run, and since when it does as its node counts: a clock that was
  // set while nobody looked is told by that. -1: none was.
  std::int32_t witness = -1;
  Instant witness_since;
  Instant ended_at;     // of that attempt: the last end of a rank so far; zero: none has ended
  Instant told_at;      // when its ranks were told to end, from when their grace period counts; zero before
  Instant saved_at;     // its last checkpoint, as far as its nodes have told; zero before
  Instant finished_at;  // zero before
  bool has_saved = false;  // a node has seen its folder for checkpoints: later attempts must find it
  std::int32_t exit_code = 0;
  std::string reason;    // why it waits, or why it ended
  std::string last_end;  // why the attempt before this one ended

  // What its attempts did to it and to others, and so how soon it may try again.
  std::int32_t bad_ends = 0;         // in a row: attempts that a loss, a fault or a failure ended
  std::int32_t deadly_attempts = 0;  // of these, those in which nodes were lost or set aside
  std::int32_t nodes_lost = 0;       // in them
  std::int32_t attempt_losses = 0;   // nodes lost or set aside in the running attempt, or in the last one
  Instant not_before;                // it does not start again before
  std::string held;                  // why it does not start until somebody releases it; "": it is not held
  // Nodes that have no room for what it ships or lack what it has saved, and when the last of them said so.
  // Not durable: after a restart of the controller it asks again.
  std::set<NodeName> too_small;
  Instant too_small_at;
  std::string submit_key;  // of the request that brought it; of an array in its first element alone

  // Of the running attempt, or of the last one: what `holds` tells apart.
  bool holds = false;             // the places below are in use
  std::vector<RankPlace> places;  // by rank: each attempt has a number of them of its own
  std::vector<RankStatus> ranks;
  std::int32_t master_port = 0;
  EndCause ending = EndCause::none;

  bool finished() const {
    return state == JobState::succeeded || state == JobState::failed || state == JobState::cancelled;
  }
  bool placed() const { return holds; }

  friend bool operator==(const Job&, const Job&) = default;
};

constexpr std::size_t queues_max = 1'000;
constexpr std::size_t queue_name_max = 100;
constexpr std::int64_t queue_share_max = 1'000'000'000;  // a million devices

// A tenant's share of the cluster: "research/vision" is a part of "research". Shares are thousandths of
// devices.
struct Queue {
  QueueName name;
  std::int64_t guarantee = 0;
  std::int64_t limit = sched::no_limit;
  std::int64_t user_limit = sched::no_limit;  // for each user
  double weight = 1;
  std::int32_t priority_max = cluster::priority_max;  // of its jobs and of those of its parts
  // The first job that can be in it: those before it were in a queue of its name that is gone.
  std::uint64_t jobs_from = 0;

  friend bool operator==(const Queue&, const Queue&) = default;
};

using QueueUser = std::pair<QueueName, std::string>;  // who in which queue
constexpr std::size_t past_use_max = 100'000;

// The queue that it is a part of, "" if it is none.
QueueName parent_of(const QueueName& name);

// ---- everything

struct Standing;

// On which clock the times of a state are: how far the date is from the steady clock of one start of a
// machine. One that was set moves what is under way along (ClockSet).
struct ClockOffset {
  std::string boot;  // of the machine; "": nobody knows
  Duration offset{};

  friend bool operator==(const ClockOffset&, const ClockOffset&) = default;
};

// How many ranks of an attempt have not come to a state yet: what follows from all of them is known without
// walking past each of them at every report.
struct RankTally {
  std::int32_t to_start = 0;
  std::int32_t to_end = 0;
  std::size_t detail_bytes = 0;  // what they have said so far

  friend bool operator==(const RankTally&, const RankTally&) = default;
};
RankTally tally_of(const Job& job);

struct State {
  std::map<NodeName, Node> nodes;
  std::map<JobId, Job> jobs;
  std::map<QueueName, Queue> queues;
  people::People people;
  std::string cluster_id;      // random, made with the store; "" in worlds that have only one
  std::uint64_t next_job = 1;  // is stored with it: ids do not come back, also if jobs are forgotten
  ClockOffset clock;           // so is this
  Instant there_at;            // and when a controller was there last, if not only for a moment
  std::map<std::string, JoinToken> join_tokens;  // by id
  std::map<NodeName, Member> members;
  std::map<SecretId, Secret> secrets;
  std::map<ServiceName, Service> services;
  std::string secret_key;      // the id of the key that new ones are sealed under; "": there was none yet
  NodeName members_looked_at;  // last, for those that are over for long; derived
  AuditLog audit;
  // What jobs had that are not kept any longer: the shares of queues and users do not start anew without
  // them.
  std::map<QueueUser, PastUse> past_use;
  QueueUser past_use_looked_at;  // last, for what does not weigh any more; derived
  // Replaced as a whole and never changed, so that snapshots share it.
  std::shared_ptr<const Fabric> fabric = std::make_shared<const Fabric>();

  // While a state is read: what was asked for, before the jobs that were asked for with it; then empty.
  std::map<JobId, JobSpec> asked;
  // Jobs that an earlier version stored together with what was asked for: to be written anew.
  std::set<JobId> stored_whole;

  std::uint64_t next_job_loaded = 1;  // as it was when the state was loaded; derived
  Instant loaded_at;

  // Derived, by derive() alone: jobs that are not finished, those among them that hold places, and those that
  // are finished. Most jobs of a full cluster wait, and most of a long-lived one are finished: what runs is
  // found without walking past them.
  std::set<JobId> active;
  std::set<JobId> holding;
  // Of those that are not finished: held, or made to wait after an attempt, though that may be long ago.
  std::set<JobId> held_back;
  // All nodes that have strays, and some that had; when those are looked at that should have ended.
  Instant strays_due;
  std::set<NodeName> with_strays;
  // Of those that hold places; kept in step by whoever moves a rank on.
  std::map<JobId, RankTally> tallies;
  Shares unfinished;  // jobs, by their users
  Ended ended;
  std::optional<std::size_t> kept_jobs_max;  // of those, as was said last (Expire)
  JobBytes bytes;
  Index index;
  SubmitKeys submit_keys;
  // Jobs whose ranks have said something that is not stored yet, and when that is due.
  std::set<JobId> noted;
  Instant notes_due;
  std::set<std::pair<Instant, JobId>> pauses;  // when jobs that wait to start again may do so
  // When jobs are tried again where there was no room for them; some of these may not wait for that any more.
  std::set<std::pair<Instant, JobId>> room_asked_again;
  Blame blame;
  Fleets fleets;
  // What questions about waiting jobs are answered from (explain.hpp); null before the first.
  std::shared_ptr<const Standing> standing;
  std::uint64_t revision = 0;  // counts the steps that changed something
};

// Fills in what is derived after the durable parts were loaded; `now` starts every lease anew. Links of nodes
// that are gone are dropped.
void derive(State& state, Instant now);
// The same after one job has changed, or is new.
void derive(State& state, const Job& job, Instant now);

// The state was loaded again while the connections to the nodes went on: what may still come over them is not
// forgotten.
void keep_strays(State& fresh, const State& before);

// What it asks for, now that it was tried in places.
sched::Shape shape_of(const Job& job);

std::set<NodeName> node_names(const State& state);
NodeState node_state(const State& state, const Node& node);
// May gangs be placed on it? Only if all that runs on it is known and wanted: else devices would be given out
// while a rank of an attempt that is over still uses them.
bool takes_work(const Node& node);
std::string_view name_of(NodeState state);
std::string_view name_of(JobState state);
// As people and programs see it: one that is held says so.
std::string_view state_name(const Job& job);
// All that it says.
inline constexpr std::array<std::string_view, 8> state_names{"queued", "starting",  "running", "restarting",
                                                             "held",   "succeeded", "failed",  "cancelled"};

// What was asked for is kept once for all elements of an array: under the id of the first.
JobId asked_with(const Job& job);
// What is kept under that id; null if no job is left that was asked for with it.
const JobSpec* asked_under(const State& state, JobId first);

// Why a job cannot be found: there never was one, or it has ended and is not kept any longer.
Error no_job(const State& state, JobId job);

// The elements of the array that the job belongs to, in the order of their ids.
Result<std::vector<JobId>> array_elements(const State& state, JobId job);
// Those of them that are in the set, without walking past the others.
Result<std::vector<JobId>> array_elements_in(const std::set<JobId>& jobs, const State& state, JobId job);

// The ranks of the running attempt, or of the last one; as many as are wanted before the first.
std::int32_t rank_count(const Job& job);
// Where its ranks are.
std::set<NodeName> nodes_of(const Job& job);

// Why it takes no work although nobody has drained it, "" if it does.
std::string reason_of(const Node& node);

// Why it waits, or why it ended.
std::string reason_of(const State& state, const Job& job);

// How many devices those ranks use, in thousandths.
std::int64_t gpu_share_total(const Job& job);

}  // namespace tutti::cluster
