// The cluster as a state machine: what users ask, agents report and time brings goes in as events; what must
// be stored, sent and answered comes out as effects. No I/O, no clock: `now` is an argument.
//
// The driver's duty: step a batch of events, commit what changed, and only then send and answer.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "control/cluster/model.hpp"

namespace tutti::cluster {

// A node that was not heard for this long is lost.
constexpr Duration lease = 3s;
constexpr Duration heartbeat_every = 1s;
// When more than a tenth of the nodes fall silent within one lease, and at least so many, the controller
// doubts its own ears first: they get one more lease.
constexpr std::size_t mass_silence_nodes_min = 2;
constexpr std::size_t mass_silence_part = 10;
// Ranks of an attempt that is over have so long to save what they have while their job waits, whatever their
// grace period: until they have ended their node takes no work.
constexpr Duration stray_time_max = 1min;
constexpr Duration strays_told_every = 5s;
// What running ranks say is stored no more often.
constexpr Duration note_every = 1s;
// Of one EndDoomed.
constexpr std::size_t doomed_per_step_max = 1'000;

// ---- events

struct Submit {
  std::vector<JobSpec> specs;  // one, or the elements of one array
  std::string key = {};        // the same submit with the same key is the same; "": it has none
  bool only_repeats = false;   // it was done before: it is answered, and never done anew
};
struct Cancel {
  JobId job;
  std::string by;            // for the reason
  bool whole_array = false;  // every element of the job's array that has not ended
  bool now = false;          // without the grace period
};
// A job that is held may start again.
struct Release {
  JobId job;
  bool whole_array = false;  // every element of the job's array that is held or made to wait
};
struct RankReport {
  JobId job;
  std::int32_t attempt = 0;
  std::int32_t rank = 0;
  RankStatus status;
  Duration ended_ago = {};  // when it was told, so that the clocks of nodes need not be right
  // Of one that runs, how long it has, on a clock that nobody sets; it may be off by the same each time it is
  // told. 0: not known.
  Duration ran = {};
  // On the steady clock of whoever heard it: until it is believed it may wait for long. Zero: just now.
  Instant heard_at = {};
};
// A node's agent has connected: what it has, and every rank it still answers for.
struct Hello {
  NodeName node;
  std::string location;
  std::string address;
  std::int64_t agent_pid = 0;
  Inventory inventory;
  std::vector<RankReport> ranks;
  std::string illness = {};              // what keeps the node from taking work; "": nothing
  std::string identity = {};             // of the agent's folder
  std::string machine = {};              // host, boot and place of the folder
  std::string cluster = {};              // the one that the folder belongs to, "" if it is new
  std::uint64_t jobs_seen = 0;           // the highest id of a job of that cluster that was started here
  std::vector<std::int32_t> ports = {};  // kept free for gangs whose rank 0 is here
  std::uint64_t jobs_saved = 0;          // the highest id of one whose folder for checkpoints is there
  bool keeps_apart = false;              // ranks run there as the accounts of their users
  std::optional<NodeKeeps> keeps = {};   // nothing: an agent of an earlier version
  std::string lacks = {};                // what of that it cannot do; "": nothing
};
// The ports that the agent keeps free now.
struct PortsHeld {
  NodeName node;
  std::vector<std::int32_t> ports;
};
struct Heard {
  NodeName node;
  std::string illness = {};
  Bytes kept = {};  // what ranks that have ended left there
};
struct Reported {
  Reported() = default;
  Reported(NodeName told_by, std::vector<RankReport> reports)
      : node(std::move(told_by)), ranks(std::move(reports)) {}
  Reported(NodeName told_by, RankReport report) : node(std::move(told_by)) {
    ranks.push_back(std::move(report));
  }
  NodeName node;
  std::vector<RankReport> ranks;  // in the order in which it happened; none: it only speaks
};
struct Planned {
  sched::Plan plan;
  std::uint64_t generation = 0;  // of the state's index when the plan's snapshot was taken
};
struct Drain {
  NodeName node;
  bool now = false;  // its gangs move at once
};
struct Resume {
  NodeName node;
};
// The links between nodes were measured: these, and no others.
struct FabricMeasured {
  std::vector<Link> links;  // each is stamped with the time of the event
};
// Creates a queue, or changes of the one of that name what is given.
struct SetQueue {
  QueueName name;
  std::optional<std::int64_t> guarantee;
  std::optional<std::int64_t> limit;
  std::optional<std::int64_t> user_limit;
  std::optional<double> weight;
  std::optional<std::int32_t> priority_max;
};
struct RemoveQueue {
  QueueName name;
};
// Makes somebody known, or changes of the one of that name what is given.
struct SetPerson {
  people::Name name;
  std::optional<people::Kind> kind;
  std::optional<std::vector<people::Grant>> grants;
  std::optional<bool> blocked;
  std::vector<people::Grant> by = {};  // what whoever asks has
};
// With all his tokens. His jobs stay.
struct RemovePerson {
  people::Name name;
};
// The secret is with whoever asks; here comes its hash.
struct IssueToken {
  people::Token token;
};
// An issuer of logins that the controller believes says who somebody is: he gets the token. Who was not let
// in before stays outside.
struct LogIn {
  std::string login;  // "ISSUER SUBJECT"
  people::Token token;
};
struct RevokeToken {
  people::TokenId token;
};
// They have opened something since this was said last.
struct TokensUsed {
  std::set<people::TokenId> tokens;
};
// A node that is lost and does not come back.
struct RemoveNode {
  NodeName node;
};
// Finished jobs that somebody has put away.
struct RemoveJobs {
  std::vector<JobId> jobs;
};
// Some of what is over and was kept long enough goes.
struct Expire {
  Retention keep;
};
// Some of those that wait for a success that will not come end: bit by bit, so that nobody waits behind it.
struct EndDoomed {};
// The controller's clock is another one than that of the state's times: it was set, or a later controller
// goes on with them. What is under way is moved along, so that it takes as long as it would have.
struct ClockSet {
  ClockOffset clock;
};
// A token for new nodes; when it was made and until when it is good follows from the time of the event.
struct MakeJoinToken {
  JoinToken token;
  Duration life{};
};
struct RevokeJoinToken {
  std::string id;
};
// Somebody shows a token and asks to be a node; the certificate is signed, and goes out when this is stored.
struct Join {
  std::string token_hash;
  Member member;
};
// A node has got a new certificate for the key that it has.
struct Renew {
  Member member;
};
// Its certificate is good no more, and it is lost at once.
struct RevokeNode {
  NodeName node;
};
// It comes sealed, under the key of that id.
struct SetSecret {
  SecretId id;
  std::string key;
  std::string sealed;
  std::int32_t bytes = 0;  // of the value
  std::string by = {};
};
struct RemoveSecret {
  SecretId id;
};
// New secrets are sealed under this key from now on; whoever sends it has it on its disk.
struct UseSecretKey {
  std::string key;
};
// Some that were sealed under an older key.
struct SecretsRewrapped {
  struct One {
    SecretId id;
    std::string before;  // as it was sealed then
    std::string sealed;
  };
  std::string key;
  std::vector<One> secrets;
};
// The ranks of this attempt cannot be told to start, for want of what the job asked for.
struct SecretsWithheld {
  JobId job;
  std::int32_t attempt = 0;
  std::string why;
};
// Makes a service, or gives the one of that name something else to serve, or other bounds.
struct Serve {
  ServiceName name;
  JobSpec replica;
  bool only_command = false;  // is another than of what it serves, and all else of a replica stays
  std::optional<std::int32_t> replicas_min = {};
  std::optional<std::int32_t> replicas_max = {};
  std::optional<Duration> idle_time = {};
  std::optional<Duration> target_ttft = {};
  std::int32_t canary_share =
      0;  // of requests, in thousandths; 0: the new version takes the place of the old
  // The key of its engines, for a new one.
  SetSecret key = {};
};
// The canary takes the place of what serves.
struct Promote {
  ServiceName service;
  std::string by = {};
};
// What is to take its place goes.
struct RollBack {
  ServiceName service;
  std::string by = {};
};
struct ScaleService {
  ServiceName service;
  std::int32_t replicas_min = 0;
  std::int32_t replicas_max = 0;
  std::string by = {};
};
// It is gone, and its replicas end within their grace period.
struct StopService {
  ServiceName service;
  std::string by = {};
};
// What a gateway says of the services that it stands before. Of those that it does not name nothing waits or
// runs there.
struct GatewayTold {
  std::string gateway;
  std::string url;  // as people reach it; "": nobody knows
  std::vector<ServiceTold> services;
};
// Services about which something has changed, or whose time has come, get the replicas that they want.
struct Tend {};
// Something that is done or refused elsewhere, for the audit log alone.
struct Noted {
  std::string verb;
  std::string object;
  std::string what = {};
  std::string who = {};
  std::string refused = {};  // why; "": it was done
};
// So much of the audit log is in files, too.
struct AuditShelved {
  std::uint64_t last = 0;
};
// The files of the log go on to there: further than the store, where that is an older copy.
struct AuditFound {
  AuditHead head;
};
struct Tick {
  bool deaf =
      false;  // whoever hears for the controller stands still: neither silence nor a time limit is judged
};

using Event =
    std::variant<Submit, Cancel, Release, Hello, Heard, Reported, Planned, Drain, Resume, FabricMeasured,
                 SetQueue, RemoveQueue, RemoveNode, RemoveJobs, Expire, Tick, PortsHeld, EndDoomed, ClockSet,
                 SetPerson, RemovePerson, IssueToken, LogIn, RevokeToken, TokensUsed, MakeJoinToken,
                 RevokeJoinToken, Join, Renew, RevokeNode, Noted, AuditShelved, AuditFound, SetSecret,
                 RemoveSecret, UseSecretKey, SecretsRewrapped, SecretsWithheld, Serve, Promote, RollBack,
                 ScaleService, StopService, GatewayTold, Tend>;

// ---- effects

// Start these ranks of the job's running attempt. Idempotent.
struct StartRanks {
  NodeName node;
  JobId job;
  std::int32_t attempt = 0;
  std::vector<std::int32_t> ranks;
};
// End every rank of this attempt. Idempotent; the end of each of `ranks` is reported, also of one whose start
// has not come through: it will not start any more.
struct EndRanks {
  NodeName node;
  JobId job;
  std::int32_t attempt = 0;
  std::vector<std::int32_t> ranks;
  bool at_once = false;  // without the grace period
};
// The attempt's end is stored: the node need not report it again.
struct ForgetRanks {
  NodeName node;
  JobId job;
  std::int32_t attempt = 0;
  bool job_ended = false;  // for good: there will be no other attempt
};
// Say Hello again: the node was given up and is heard once more on its old connection.
struct AskHello {
  NodeName node;
};
using Send = std::variant<StartRanks, EndRanks, ForgetRanks, AskHello>;

struct Effects {
  std::vector<Send> sends;
  std::set<JobId> jobs;                                     // changed, or gone: to be stored, or removed
  std::set<JobId> shown;                                    // of these, what people see of it has changed
  std::set<JobId> ended;                                    // of these, those that came to their end in it
  std::set<JobId> asked;                                    // what they were asked for with, by the first id
  std::set<NodeName> nodes;                                 // changed, or gone: to be stored, or removed
  std::set<QueueName> queues;                               // changed, or gone: to be stored, or removed
  std::set<people::Name> persons;                           // changed, or gone: to be stored, or removed
  std::set<people::TokenId> tokens;                         // changed, or gone: to be stored, or removed
  std::set<people::TokenId> tokens_used;                    // only when it was used last: to be stored
  std::set<QueueUser> past_use;                             // changed, with the jobs that are gone, or gone
  std::set<std::string> join_tokens;                        // changed, or gone: to be stored, or removed
  std::set<NodeName> members;                               // changed, or gone: to be stored, or removed
  std::set<SecretId> secrets;                               // changed, or gone: to be stored, or removed
  std::set<ServiceName> services;                           // changed, or gone: to be stored, or removed
  std::set<std::uint64_t> audit;                            // lines that are new, or gone: the same
  bool fabric = false;                                      // replaced: to be stored
  bool cluster = false;                                     // ids or the clock: to be stored
  bool schedule = false;                                    // room or demand changed: ask the scheduler
  Result<std::vector<JobId>> reply = std::vector<JobId>();  // to Submit and the other requests
};

Effects step(State& state, Instant now, const Event& event);

// Is there anything in it that has to be stored?
bool is_stored(const Effects& effects);

// Does it end something, so that it is to work on a full disk, too, where nothing else does?
bool frees_room(const State& state, const Event& event);

// What the scheduler sees; it points into the state.
sched::Snapshot snapshot(State& state, Instant now);

// When, after now, the scheduler wants to be asked although nothing has happened, or a job's pause is over.
Instant next_wake(const State& state, Instant now);

// Would these be accepted?
Result<> admit(State& state, Instant now, const Submit& event);
// Was it done before, by its key? Then it is answered as it was, or refused because it says something else.
bool is_repeated(const State& state, Instant now, const Submit& event);

// The variables that a rank of the running attempt gets beyond the job's own, in one list (environment.hpp).
std::vector<std::string> rank_environment(const State& state, const Job& job, std::int32_t rank);

// The file that takes the logs as well: %j is the job's id, %x its name, %A the array's id, %a the index, %t
// the rank
// ("" stays "").
std::string output_file(const Job& job, std::int32_t rank);

// Facts that hold after every step; the error names the broken one.
Result<> invariants(const State& state);

}  // namespace tutti::cluster
