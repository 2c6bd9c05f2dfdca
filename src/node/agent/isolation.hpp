// Ranks that run as the accounts of their users (`tutti agent --isolation user`): what of the agent's folder
// they may pass through, who they are, and what an attempt has for itself. begin() when the agent starts; the
// rest from lanes, on any thread, because accounts and disks may take any time.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "node/agent/accounts.hpp"
#include "node/keeper/processes.hpp"
#include "node/rank/isolation.hpp"

namespace tutti::agent {

// A directory of users that does not answer for so long keeps jobs from this node.
constexpr Duration account_patience = 20s;

// A folder below the agent's that ranks of others pass through, each to what is its own: they may not list
// it.
constexpr mode_t passage_mode = 0711;
Result<> make_passage(const std::string& path);

class IsolationRules {
 public:
  struct Options {
    std::string folder;       // of the agent
    std::string checkpoints;  // for TUTTI_CHECKPOINT_DIR
    std::string users_file;   // "" for none
    rank::PeopleIds people = {};
  };
  explicit IsolationRules(Options options)
      : options_(std::move(options)),
        accounts_(options_.users_file, [people = options_.people](const std::string& name) {
          return rank::find_account(name, people);
        }) {}

  // Refuses folders that ranks could not reach, before anything is made in them.
  static Result<> check_places(const std::string& folder, const std::string& checkpoints);
  // Before the first rank: the same, closes all in the folder that is not theirs, and finds out what this
  // machine can do. `trial`: the name of a cgroup that no rank has.
  Result<> begin(const std::string& trial);
  // What cannot be promised here, for people; empty if all can.
  const std::vector<std::string>& lacks() const { return lacks_; }
  std::string lacks_in_a_line() const;

  struct Prepared {
    std::shared_ptr<const rank::Isolation> isolation;  // none if it may not start
    Error why = failed("");                            // then
    keeper::Hindrance hindrance = keeper::Hindrance::node;
    std::string warning;  // for the log, "" for none
  };
  // Who the user's ranks are here, and the places of an attempt of this name.
  Prepared prepare(const std::string& user, const std::string& attempt,
                   Accounts::Clock::time_point asked_at = Accounts::Clock::now());
  // The folder of this agent on the disk in memory, in which those of attempts are; "" until one was made.
  std::string memory_folder() const;
  // Whatever is left of the places of attempts; of one, and of all but these.
  std::vector<std::string> places_of(const std::string& attempt) const;
  std::vector<std::string> all_places() const;

 private:
  Result<rank::PrivatePlaces> places(const std::string& attempt);
  void find_memory_folder();
  Result<> make_memory_folder();
  Result<> close_folder() const;

  Options options_;
  Accounts accounts_;
  std::string memory_prefix_;
  mutable std::mutex memory_mutex_;
  std::string memory_folder_;
  bool has_mounts_ = false;
  bool filters_devices_ = false;
  std::vector<std::string> lacks_;
};

}  // namespace tutti::agent
