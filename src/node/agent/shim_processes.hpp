// The ranks of this node as Linux processes: each under a shim of its own, in a folder of its own, so that
// they outlive the agent that started them. Runs on the agent's loop, and leaves to lanes what could keep it
// waiting: every file, the processes of ranks that have to be looked for, the removal of trees.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/files/descriptor.hpp"
#include "base/files/open_files.hpp"
#include "net/http/loop.hpp"
#include "node/agent/attic.hpp"
#include "node/agent/isolation.hpp"
#include "node/agent/lane.hpp"
#include "node/agent/left_rank.hpp"
#include "node/agent/ports.hpp"
#include "node/agent/rank_end.hpp"
#include "node/agent/removals.hpp"
#include "node/agent/room.hpp"
#include "node/agent/shipped.hpp"
#include "node/agent/starts.hpp"
#include "node/keeper/processes.hpp"
#include "node/rank/hold.hpp"
#include "node/rank/launch.hpp"
#include "node/rank/output_copy.hpp"
#include "node/rank/rank_folder.hpp"

namespace tutti::agent {

using keeper::RankKey;

// For the end that a shim has left; then its own exit code has to do.
constexpr Duration end_read_max = 5s;
// For a shim to put on record the end that it has told the kernel. It may wait for a copy of the log before.
constexpr Duration record_patience = rank::copy_patience + 5s;

struct ProcessOptions {
  std::string node;
  std::string folder;       // of the agent: ranks are below it
  std::string checkpoints;  // for TUTTI_CHECKPOINT_DIR
  std::string tutti_program;
  bool shared_checkpoints = false;  // that folder is the same on all nodes
  files::OpenFiles open_files;
  bool as_users = false;   // ranks run as the accounts of their users, and not as this process does
  std::string users_file;  // which those are, "" if they are called as the users
  rank::PeopleIds people = {};
};

class ShimProcesses final : public keeper::Processes {
 public:
  struct Calls {
    std::function<void(const RankKey&, const Result<>&)> started;
    std::function<void(const RankKey&, const cluster::RankStatus&)> exited;
    std::function<void(cluster::JobId, std::int32_t attempt, const Result<std::string>& folder,
                       keeper::Hindrance)>
        prepared;
    std::function<void(const RankKey&, keeper::Sight)> seen;
    std::function<void(const Result<>&)> went_aside;
  };

  ShimProcesses(net::Loop& loop, ProcessOptions options, Shipped& shipped, Attic& attic, Calls calls);

  Result<std::map<RankKey, cluster::RankStatus>> adopt() override;
  bool has_room(const wire::StartRanks& start) override;
  void prepare(const wire::StartRanks& start) override;
  void stop_preparing(cluster::JobId job, std::int32_t attempt) override;
  void release(cluster::JobId job, std::int32_t attempt) override;
  void remember(const keeper::Membership& membership) override;
  void put_aside(const std::string& cluster) override;
  std::vector<std::int32_t> free_ports() const override { return ports_.free(); }
  Result<std::int32_t> take_port(const wire::StartRanks& attempt) override;
  void start(const wire::StartRanks& attempt, const std::string& workdir) override;
  void end(const RankKey& key, bool at_once) override;
  Duration ended_ago(const RankKey& key) const override;
  Duration ran(const RankKey& key) const override;
  void forget(const RankKey& key) override;
  Bytes kept() const override { return attic_.kept() + removals_.bytes(); }
  void job_ended(cluster::JobId job) override { attic_.job_ended(job); }
  void look(const std::vector<RankKey>& running) override;

  // Whose ranks these are, as the folder says: before anything else.
  void belong_to(const keeper::Membership& membership);

  // How many ranks can be watched, each gang counting as one more.
  std::int32_t watch_max() const { return static_cast<std::int32_t>(room_.files_max()); }

  // How ranks are kept apart; none if they run as this process does. Set up by adopt().
  const IsolationRules* isolation() const { return isolation_.get(); }

  // What keeps this node from starting ranks; "" if nothing does.
  std::string illness() const;

  // Where the logs of ranks are.
  const std::string& ranks_folder() const { return folder_; }

 private:
  // What a shim has told the kernel, and when that was first seen.
  struct OwnEnd {
    std::int32_t exit_code = 0;
    Instant at;
  };
  // A rank that runs.
  struct Entry {
    rank::ShimProcess shim;
    std::shared_ptr<net::Loop::Handle> watch;
    bool ours = false;  // a child of this process, to be reaped
    rank::Hold hold{""};
    Duration grace{};
    cluster::Told told = cluster::Told::unknown;  // to end
    std::shared_ptr<net::Loop::Handle> patience;  // with a shim that was asked to end its rank
    int forced = 0;                               // how often the agent has ended it over the shim's head
    std::optional<OwnEnd> own_end;                // it has ended, and that is not on record yet
    Instant lived_at;                             // when it was last seen to run, on the steady clock
  };
  // A shim that has ended; its rank's end is not reported yet.
  struct Ended {
    rank::ShimProcess shim;
    rank::Hold hold{""};
    std::optional<std::int32_t> shim_code;  // its own exit code, where this process could reap it
    std::optional<OwnEnd> own_end;          // where it was seen
    bool forced = false;
    cluster::Told told = cluster::Told::unknown;
    Instant lived_at{};     // when the rank was last seen to run, on the wall's clock; zero if it never was
    bool rank_ran = false;  // its shim has told the kernel how that ended
    bool shim_killed = false;  // by a signal, where this process could reap it
    bool by_others = false;    // by one that no program ends itself with: SIGKILL
    bool is_left = false;      // the shim has not ended, and will do nothing any more
    bool unread = false;       // its folder does not answer
    bool end_known = false;    // `left` is read, or will not be
    bool began = true;         // the shim, which may have ended before it was one
    std::optional<RankEnd> left;
    std::shared_ptr<net::Loop::Handle> timer;
    std::size_t looks = 0;
  };
  // A rank of an earlier agent whose folder has not answered yet, or does not tell which shim it has.
  struct Unread {
    std::optional<LeftRank> left;     // what the folder has told
    std::optional<bool> end_at_once;  // it is to end, as soon as it is found
    std::shared_ptr<net::Loop::Handle> timer;
  };

  using Attempt = std::pair<cluster::JobId, std::int32_t>;
  using Prepared = std::function<void(const Result<std::string>&, keeper::Hindrance)>;

  // The work of prepare(), once there is room.
  void lay_out(const wire::StartRanks& start, const Prepared& done);
  void find_account(const wire::StartRanks& start, const Prepared& done);
  void account_found(const wire::StartRanks& start, const IsolationRules::Prepared& found,
                     const Prepared& done);
  Result<> begin_isolation();
  void remove_places(const std::string& place, const std::string& owner = "");

  std::string folder_of(const RankKey& key) const;
  std::string place_of(cluster::JobId job, std::int32_t attempt) const;
  std::string checkpoints_of(cluster::JobId job) const;
  Result<std::vector<RankKey>> left_keys() const;
  cluster::RankStatus adopt_one(const RankKey& key, const LeftRank& left);
  void look_for_shims();
  void looked_for(const RankKey& key, const rank::ShimProcess& shim);
  void read_late(const RankKey& key, const LeftRank& left);
  std::string hold_name(const RankKey& key) const;
  void started(const RankKey& key, const Result<std::shared_ptr<StartedShim>>& shim);
  // None where the files of this agent are needed for other things.
  files::FileDescriptor pidfd_of(const rank::ShimProcess& shim) const;
  void watch(const RankKey& key, Entry& entry, files::FileDescriptor pidfd);
  void watch_again(RankKey key);
  void ended(RankKey key);
  // True if it has ended by itself, which its shim need not be asked for: a disk may keep that.
  bool note_end(const RankKey& key, Entry& entry);
  void look_for_ends();
  static Instant lived_at(const Entry& entry);
  void leave_shim(RankKey key);
  void read_end(const RankKey& key, Ended end);
  void force(const RankKey& key);
  // What the folder of a rank tells that has ended.
  struct EndRead {
    std::optional<RankEnd> left;
    bool all_gone = false;  // there is no process of it any more
    bool began = true;
  };
  void end_read(const RankKey& key, EndRead read);
  void end_unread(const RankKey& key);
  void clear(const RankKey& key);
  void cleared(const RankKey& key, bool all_gone);
  void tell_hung(const RankKey& key);
  cluster::RankStatus verdict(const Ended& end) const;
  void miss_disk(const std::string& why);
  void note_membership();
  void sweep(const std::map<RankKey, cluster::RankStatus>& found);
  void end_unfound(const std::map<RankKey, cluster::RankStatus>& found) const;

  net::Loop& loop_;
  ProcessOptions options_;
  std::string folder_;
  Shipped& shipped_;
  Attic& attic_;
  Calls calls_;
  Ports ports_;
  Room room_;
  keeper::Membership membership_;
  std::shared_ptr<MembershipNotes> membership_notes_;
  bool noting_ = false;
  std::shared_ptr<IsolationRules> isolation_;
  std::map<Attempt, std::shared_ptr<net::Loop::Handle>>
      looked_up_;  // whose accounts are: until they take too long
  std::map<Attempt, std::shared_ptr<const rank::Isolation>> isolated_;
  std::string account_warning_;  // as it was told last
  std::map<RankKey, Entry> running_;
  std::map<RankKey, Ended> ended_;
  std::map<RankKey, Instant> ended_at_;  // on this node's clock, as long as the end is not acknowledged
  std::map<RankKey, Unread> unread_;
  std::map<pid_t, std::shared_ptr<net::Loop::Handle>> left_shims_;  // killed, until they have gone
  std::map<cluster::JobId, Instant> saved_;                         // as last seen
  std::string cgroup_prefix_;                                       // of the cgroups of this agent's ranks
  std::map<std::string, std::string> cgroups_before_;  // by rank: made when this node was called otherwise
  bool holds_ = true;                                  // cgroups can be had
  std::optional<std::uint64_t> found_on_;  // the disk on which a rank last found its folder for checkpoints
  std::string not_mounted_;                // what is missing as long as another disk is there; "": nothing
  std::shared_ptr<net::Loop::Handle> not_mounted_timer_;
  Lane sights_;                 // what running ranks say
  Lane shared_;                 // the folder for checkpoints
  std::unique_ptr<Lane> left_;  // what ranks of an earlier agent have left; while it is read
  Lane ends_;                   // what ranks have left in their folders
  Lane clears_;                 // processes of ranks, without a look at their folders
  Lane notes_;                  // marks that an end is acknowledged, whose ranks these are
  Removals removals_;
  Lane accounts_;
  Starts starts_;
};

// Where the logs of the attempt's ranks below this folder are, finished ones too: by rank. Reads a folder:
// not for the loop.
std::map<std::int32_t, std::string> log_folders(const std::string& ranks_folder, cluster::JobId job,
                                                std::int32_t attempt);

}  // namespace tutti::agent
