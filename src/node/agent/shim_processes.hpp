// The ranks of this node as Linux processes: each under a shim of its own, in a folder of its own, so that
// they outlive the agent that started them. Runs on the agent's loop.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/files/descriptor.hpp"
#include "net/http/loop.hpp"
#include "node/agent/ports.hpp"
#include "node/agent/shipped.hpp"
#include "node/keeper/processes.hpp"
#include "node/rank/launch.hpp"
#include "node/rank/rank_folder.hpp"

namespace tutti::agent {

using keeper::RankKey;

constexpr std::size_t finished_folders_max = 2000;  // their logs stay readable until then

struct ProcessOptions {
  std::string node;
  std::string folder;       // of the agent: ranks are below it
  std::string checkpoints;  // for TUTTI_CHECKPOINT_DIR
  std::string tutti_program;
};

class ShimProcesses final : public keeper::Processes {
 public:
  struct Calls {
    std::function<void(const RankKey&, const cluster::RankStatus&)> exited;
    std::function<void(cluster::JobId, std::int32_t attempt, const Result<std::string>& folder)> prepared;
  };

  ShimProcesses(net::Loop& loop, ProcessOptions options, Shipped& shipped, Calls calls);

  Result<std::map<RankKey, cluster::RankStatus>> adopt() override;
  void prepare(const wire::StartRanks& start) override;
  void release(cluster::JobId job, std::int32_t attempt) override;
  void remember(const keeper::Membership& membership) override;
  Result<> put_aside(const std::string& cluster) override;
  std::vector<std::int32_t> free_ports() const override { return ports_.free(); }
  Result<> take_port(const wire::StartRanks& attempt) override;
  bool has_run(const RankKey& key) const override;
  Result<> start(const wire::StartRanks& attempt, const wire::StartRank& rank,
                 const std::string& workdir) override;
  void end(const RankKey& key) override;
  void forget(const RankKey& key) override;
  std::string said(const RankKey& key) override;
  Instant saved_at(const RankKey& key) override;

  // Whose ranks these are: before the first of them starts.
  void belong_to(const keeper::Membership& membership) { membership_ = membership; }

  // Where the logs of the attempt's ranks on this node are, finished ones too: by rank.
  std::map<std::int32_t, std::string> log_folders(cluster::JobId job, std::int32_t attempt) const;

 private:
  // A rank that runs.
  struct Entry {
    rank::ShimProcess shim;
    files::FileDescriptor pidfd;
    std::shared_ptr<net::Loop::Handle> watch;
    bool ours = false;  // a child of this process, to be reaped
  };

  std::string folder_of(const RankKey& key) const;
  std::string checkpoints_of(cluster::JobId job) const;
  cluster::RankStatus adopt_one(const RankKey& key);
  std::vector<std::string> environment(const wire::StartRanks& attempt, const wire::StartRank& rank) const;
  void watch(const RankKey& key, Entry& entry);
  void ended(RankKey key);
  void trim();

  net::Loop& loop_;
  ProcessOptions options_;
  std::string folder_;
  Shipped& shipped_;
  Calls calls_;
  Ports ports_;
  keeper::Membership membership_;
  std::map<RankKey, Entry> running_;
  std::vector<std::string> finished_;  // folders, oldest first
};

}  // namespace tutti::agent
