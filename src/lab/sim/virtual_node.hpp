// A server in the simulator: its power, its disk, the ranks that run on it, and the real logic of an agent
// (keeper/keeper.hpp) that answers for them. One thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lab/sim/world.hpp"
#include "node/keeper/keeper.hpp"

namespace tutti::sim {

class VirtualNode final : private keeper::Processes {
 public:
  // Opens a connection to the controller; nothing if it cannot be reached.
  using Dial = std::function<std::optional<Network::Id>()>;

  VirtualNode(World& world, cluster::Hello self, Dial dial);

  const std::string& name() const { return self_.node; }
  bool powered() const { return powered_; }
  bool frozen() const { return frozen_; }
  bool has_agent() const { return keeper_ != nullptr; }
  Network::Id connection() const { return connection_; }
  // The agent answers for nothing any more.
  bool idle() const { return keeper_ != nullptr && keeper_->ranks().empty(); }

  // ---- faults and their end
  // Those that break something say whether there was something to break.
  void power_on();
  void power_on_after(Duration pause);
  bool power_off(bool wipe_disk);
  void start_agent();
  bool kill_agent();
  bool freeze();
  void thaw();
  // Nothing can be started until the disk is emptied; the agent says so, or knows nothing of it.
  bool fill_disk(bool agent_knows);
  void empty_disk();
  // The agent's loop stands still; the ranks run on.
  bool agent_stalled() const { return agent_stalled_; }
  bool stall_agent();
  void end_agent_stall();
  // Kills the shim of one of the ranks that run.
  bool kill_process();

  // ---- the network
  void receive(Network::Id connection, const std::string& frame);
  void closed(Network::Id connection);

 private:
  // What the disk knows of a rank, and the process that may run there.
  struct Folder {
    bool acknowledged = false;
    std::optional<cluster::RankStatus> exit;
    std::uint64_t process = 0;  // 0: none runs
    Duration grace{};
    bool ending = false;
    Duration started_at{};
    std::optional<Duration> ended_at;
    std::optional<Duration> ready_at;  // a replica says so from then on
    bool given_up = false;             // an agent that came later found no process: none may come any more
  };

  Result<std::map<RankKey, cluster::RankStatus>> adopt() override;
  void prepare(const wire::StartRanks& start) override;
  void stop_preparing(cluster::JobId job, std::int32_t attempt) override;
  void release(cluster::JobId job, std::int32_t attempt) override;
  void start(const wire::StartRanks& attempt, const std::string& workdir) override;
  void remember(const keeper::Membership& membership) override;
  void put_aside(const std::string& cluster) override;
  std::vector<std::int32_t> free_ports() const override { return {}; }
  Result<std::int32_t> take_port(const wire::StartRanks& attempt) override { return attempt.master_port; }
  void end(const RankKey& key, bool at_once) override;
  Duration ended_ago(const RankKey& key) const override;
  Duration ran(const RankKey& key) const override;
  void forget(const RankKey& key) override;
  void look(const std::vector<RankKey>& running) override;
  std::string said_by(const RankKey& key) const;

  // Runs it after the delay if the agent of now is still alive then; a frozen node is late.
  void agent_later(Duration delay, std::function<void()> task);
  // The same for as long as there is power.
  void node_later(Duration delay, std::function<void()> task);
  void when_thawed(std::function<void()> task);
  // Another agent has a loop of its own.
  void wake_agent();
  // The agent dies at this very point: nothing that it still does has an effect.
  void doom();

  void die_of(const RankKey& key);
  // Some time after it was asked for; then whether it worked is known, and later told.
  void start_now(const RankKey& key, const wire::StartRanks& attempt);
  Result<> try_to_start(const RankKey& key, const wire::StartRanks& attempt);
  void launch(const RankKey& key, Folder& folder, const wire::StartRanks& attempt);
  void exit_process(const RankKey& key, std::uint64_t process, std::optional<std::int32_t> code);
  void send(const wire::AgentMessage& message);
  void beat();
  void dial();
  void redial();

  World& world_;
  cluster::Hello self_;
  Dial dial_;
  bool powered_ = false;
  bool frozen_ = false;
  bool full_ = false;
  bool knows_ = false;  // that it is full
  std::uint64_t power_life_ = 0;
  std::uint64_t agent_life_ = 0;
  std::uint64_t disk_life_;
  std::uint64_t next_process_ = 1;
  std::vector<std::function<void()>> late_;  // what a frozen node will do first
  bool agent_stalled_ = false;
  std::vector<std::function<void()>> agent_late_;  // what the agent will do first
  std::map<RankKey, Folder> disk_;
  keeper::Membership membership_;  // on the disk

  std::unique_ptr<keeper::Keeper> keeper_;
  std::set<RankKey> starting_;  // of this agent: they have not come so far that they could not be stopped
  bool doomed_ = false;
  Network::Id connection_ = 0;
  Network::Id dialing_ = 0;
  Duration redial_{};
};

}  // namespace tutti::sim
