// The inside of step(): one event at work on the state, with the effects it gathers. Not for other modules.
#pragma once

#include "control/cluster/step.hpp"

namespace tutti::cluster {

class Machine {
 public:
  Machine(State& state, Instant now, Effects& effects) : state_(state), now_(now), effects_(effects) {}

  // requests.cpp
  Result<> admit(const Submit& event);
  void on(const Submit& event);
  void on(const Cancel& event);
  void on(const Release& event);
  void on(const Drain& event);
  void on(const Resume& event);
  void on(const FabricMeasured& event);
  // queues.cpp
  void on(const SetQueue& event);
  void on(const RemoveQueue& event);
  // people.cpp
  void on(const SetPerson& event);
  void on(const RemovePerson& event);
  void on(const IssueToken& event);
  void on(const LogIn& event);
  void on(const RevokeToken& event);
  void on(const TokensUsed& event);
  // nodes.cpp
  void on(const Hello& event);
  void on(const Heard& event);
  void on(const PortsHeld& event);
  void on(const Tick& event);
  // retention.cpp
  void on(const RemoveNode& event);
  void on(const RemoveJobs& event);
  void on(const Expire& event);
  // attempts.cpp
  void on(const Reported& event);
  void on(const Planned& event);
  void on(const EndDoomed& event);
  // clock.cpp
  void on(const ClockSet& event);
  // membership.cpp
  void on(const MakeJoinToken& event);
  void on(const RevokeJoinToken& event);
  void on(const Join& event);
  void on(const Renew& event);
  void on(const RevokeNode& event);
  // secrets.cpp
  void on(const SetSecret& event);
  void on(const RemoveSecret& event);
  void on(const UseSecretKey& event);
  void on(const SecretsRewrapped& event);
  void on(const SecretsWithheld& event);
  // services.cpp
  void on(const Serve& event);
  void on(const Promote& event);
  void on(const RollBack& event);
  void on(const ScaleService& event);
  void on(const StopService& event);
  void on(const GatewayTold& event);
  // tend.cpp
  void on(const Tend& event);
  // audit_log.cpp
  void on(const Noted&) {}
  void on(const AuditShelved& event);
  void on(const AuditFound& event);

 private:
  // requests.cpp
  Result<> admit(const JobSpec& spec);
  Result<> admit_share(const JobSpec& spec) const;
  void repeat(const Submit& event, const Job& first);
  void let_go(Job& job);
  void cancel_array(const Cancel& event, const std::string& reason);
  void cancel_placed(Job& job, const std::string& reason, bool now = false);

  // people.cpp
  void forget_queue(const QueueName& queue);
  void expire_tokens();
  void drop_token(people::TokenId id);
  void make_room_for_token();
  Result<> admit_token(const people::Token& token);
  void add_token(people::Token token);

  // nodes.cpp
  void judge_silence();
  void lose(Node& node);
  // Who remembers an id: an agent what was started on its node, the disk for checkpoints what was started on
  // any.
  enum class Memory { agent, disk };
  // `reunion`: it is an old acquaintance that is back after the start.
  void pass_over_ids(const Hello& hello, Memory told_by, std::uint64_t seen, bool reunion);
  bool has_begun(JobId id);
  // `told` are the ranks of its Hello.
  void ask_for_strays(const std::set<Stray>& told, Node& node);
  void compare(const NodeName& node, const std::set<Stray>& told, Job& job);
  void note(Job& job, std::int32_t rank, const RankStatus& status);
  // What the ranks of a job say is bounded together.
  void say(Job& job, std::int32_t rank, std::string detail);
  void store_notes();
  void answer_stale(const NodeName& node, const RankReport& report);
  bool is_past_saving(const Stray& stray);
  void add_stray(Node& node, const Stray& stray);
  void end_late_strays();
  void end_strays(const Job& job);
  void remove_stray(const NodeName& node, const RankReport& report);

  // membership.cpp
  Result<> may_use(const JoinToken& token, const NodeName& name) const;
  Result<> may_be_called(const Member& asks) const;
  bool is_revoked(const NodeName& name) const;
  void forget_member(const NodeName& name);
  void expire_members();
  void note_presence();
  void touch(const Member& member);

  // secrets.cpp
  void withhold(Job& job, const std::string& why);
  void forget_secrets(SecretId::Of of, const std::string& owner);
  Result<> check_sealed(const SetSecret& event) const;
  void keep_secret(const SetSecret& event);

  // services.cpp
  Result<> admit_service(const Serve& event);
  void update(Service& service, const Serve& event);
  void begin_next(Service& service, const Serve& event);
  void give_up_next(Service& service, const std::string& why);
  void promote(Service& service, const std::string& why);
  void change(Service& service, std::string what);
  void forget_gateways();
  void move_services(Duration by);

  // tend.cpp: the replicas of one service
  struct Crew;
  struct Crews;
  std::size_t tend(Service& service);
  void note_replica_end(const Job& job, JobState state, const std::string& reason);
  void forgive(Version& version, const Service& service, const Crew& crew);
  bool settle_next(Service& service, Fleet& fleet, const Crews& crews);
  void scale(Service& service, Fleet& fleet);
  void roll(Service& service, Fleet& fleet, Crews& crews);
  void make_room(Service& service, Fleet& fleet, Crews& crews, std::int32_t target);
  void bring_to(Service& service, const Version& version, Fleet& fleet, const Crew& crew,
                std::int32_t replicas);
  void cut_to(Crew& crew, std::int32_t replicas, const std::string& why);
  Result<> start_replica(const JobSpec& spec);
  void dismiss(Job& job, const std::string& why);
  void set_alarm(const Service& service, Fleet& fleet);
  void sound_alarms();

  // time_limits.cpp
  void judge_time_limits();
  bool has_told_since(Node& node, Instant since);

  // clock.cpp
  void move_start(Job& job, Duration by);
  void told_by_now(Job& job);
  void asked_by_now(Job& job);
  void hear_how_long(Job& job, const RankReport& report);

  // blame.cpp: whose fault an end was, and what follows from that
  // True if that was the last straw.
  bool blame_node(const NodeName& name, const Job& job, const std::string& why);
  void credit_node(const NodeName& name);
  void set_aside(Node& node, std::string why);
  void take_back(Node& node);
  void look_after_nodes();
  void restart(Job& job);
  void hold_if_deadly(Job& job);
  void hold_if_nobody_can_start(Job& job);
  void go_where_there_is_room(Job& job);
  bool may_have_room_by_now(const Job& job) const;
  void ask_for_room_again();
  void ask_for_room_again(const NodeName& node);
  void note_end(const Job& job);
  void wake_paused();

  // retention.cpp
  void drop(const Job& job);
  void drop(const std::vector<NodeName>& nodes);
  std::size_t expire_jobs(const Retention& keep);
  void expire_nodes(const Retention& keep, std::size_t nodes_max);
  void expire_use();

  // attempts.cpp: the life of one attempt
  void start(Job& job, std::vector<RankPlace> places);
  // `end_min`: it ran until then, if it had started; zero: nobody knows.
  void apply(const NodeName& node, const RankReport& report, Instant end_min = {});
  void pass_over_attempts(Job& job, std::int32_t told);
  void set_rank(Job& job, std::int32_t rank, RankStatus status, Duration ended_ago = {},
                Instant end_min = {});
  void end(Job& job, EndCause cause, std::string reason);
  void send_end(const Job& job);
  void settle(Job& job);
  void finish(Job& job, JobState state, std::string reason);
  void requeue(Job& job);
  void release(Job& job, bool job_ended);
  void stop(const sched::Stop& stop);
  std::int32_t take_port(const Job& job, Node& node);
  std::int32_t guess_port(const Job& job, const std::string& address) const;

  // It changed and is whole again: to be stored, and what is derived from it follows.
  void touch(const Job& job);
  void touch(const Node& node);
  void touch(const Service& service);
  void fail(Error error) { effects_.reply = std::move(error); }
  Job* find(JobId id);
  Node* find(const NodeName& name);
  Service* find_service(const ServiceName& name);

  State& state_;
  Instant now_;
  Effects& effects_;
};

// snapshot.cpp: what it waits for before it looks for room: another job, a time, a person; "" if for nothing.
std::string waits_for(const State& state, const Job& job);
// The same without the words.
bool must_wait(const State& state, const Job& job);

// How many more elements of each array may run at once.
class ArrayRoom {
 public:
  explicit ArrayRoom(const State& state);
  // True if one more element of the job's array may start, which is then counted.
  bool take(const Job& job);

 private:
  std::map<JobId, std::int32_t> running_;
};

}  // namespace tutti::cluster
