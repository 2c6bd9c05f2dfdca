// The ranks this node answers for: started here or found running after a restart of the agent. Runs on the
// agent's loop.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "cluster/step.hpp"
#include "files/descriptor.hpp"
#include "net/loop.hpp"
#include "rank/launch.hpp"
#include "rank/rank_folder.hpp"
#include "wire/messages.hpp"

namespace tutti::agent {

constexpr std::size_t finished_folders_max = 2000;  // their logs stay readable until then

struct RankKey {
  cluster::JobId job;
  std::int32_t attempt = 0;
  std::int32_t rank = 0;

  friend auto operator<=>(const RankKey&, const RankKey&) = default;
};

class Ranks {
 public:
  // `report` is called with each change of a rank; `before_end` just before the report of its end.
  Ranks(net::Loop& loop, std::string folder, std::string tutti_program,
        std::function<void(cluster::RankReport)> report, std::function<void(const RankKey&)> before_end);
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  // Takes over what an earlier agent left: running ranks and ends that nobody has acknowledged.
  Result<> adopt();

  bool knows(const RankKey& key) const { return ranks_.contains(key); }
  // Starts a rank, or reports again the one that is there.
  void start(const RankKey& key, const rank::RankSpec& spec);
  // A rank that could not even be prepared.
  void fail(const RankKey& key, const std::string& why);
  void end(cluster::JobId job, std::int32_t attempt);
  void forget(cluster::JobId job, std::int32_t attempt);

  std::vector<cluster::RankReport> reports() const;

  // Reports what the collectives of running ranks have found out since the last call.
  void look_at_sentences();
  // Where the logs of the attempt's ranks on this node are, finished ones too: by rank.
  std::map<std::int32_t, std::string> log_folders(cluster::JobId job, std::int32_t attempt) const;
  bool running(const RankKey& key) const;

 private:
  struct Entry {
    cluster::RankStatus status;
    rank::ShimProcess shim;
    files::FileDescriptor pidfd;
    std::shared_ptr<net::Loop::Handle> watch;
    bool ours = false;  // a child of this process, to be reaped
  };

  std::string folder_of(const RankKey& key) const;
  void watch(const RankKey& key, Entry& entry);
  void ended(const RankKey& key);
  void adopt_one(const RankKey& key);
  void report(const RankKey& key);
  void trim();

  net::Loop& loop_;
  std::string folder_;
  std::string tutti_program_;
  std::function<void(cluster::RankReport)> report_;
  std::function<void(const RankKey&)> before_end_;
  std::map<RankKey, Entry> ranks_;
  std::vector<std::string> finished_;  // folders, oldest first
};

}  // namespace tutti::agent
