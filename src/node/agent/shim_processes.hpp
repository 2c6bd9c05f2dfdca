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
#include "node/agent/attic.hpp"
#include "node/agent/shipped.hpp"
#include "node/keeper/processes.hpp"
#include "node/rank/launch.hpp"
#include "node/rank/rank_folder.hpp"

namespace tutti::agent {

using keeper::RankKey;

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

  ShimProcesses(net::Loop& loop, ProcessOptions options, Shipped& shipped, Attic& attic, Calls calls);

  Result<std::map<RankKey, cluster::RankStatus>> adopt() override;
  void prepare(const wire::StartRanks& start) override;
  void release(cluster::JobId job, std::int32_t attempt) override;
  Result<> start(const wire::StartRanks& attempt, const wire::StartRank& rank,
                 const std::string& workdir) override;
  void end(const RankKey& key) override;
  void forget(const RankKey& key) override;
  Bytes kept() const override { return attic_.kept(); }
  void job_ended(cluster::JobId job) override { attic_.job_ended(job); }
  std::string said(const RankKey& key) override;
  Instant saved_at(const RankKey& key) override;

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
  cluster::RankStatus adopt_one(const RankKey& key);
  std::vector<std::string> environment(const wire::StartRanks& attempt, const wire::StartRank& rank) const;
  void watch(const RankKey& key, Entry& entry);
  void ended(RankKey key);

  net::Loop& loop_;
  ProcessOptions options_;
  std::string folder_;
  Shipped& shipped_;
  Attic& attic_;
  Calls calls_;
  std::map<RankKey, Entry> running_;
};

}  // namespace tutti::agent
