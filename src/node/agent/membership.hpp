// What an agent's folder knows of itself, in files: `identity`, random and made once, so that two agents with
// one name are told apart; `cluster`, whose jobs its ranks and logs are of, and `jobs-seen`, how far it has
// counted them. Used with the folder's lock held; all of it waits for the disk.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "node/keeper/processes.hpp"

namespace tutti::agent {

// Makes it if there is none.
Result<std::string> folder_identity(const std::string& folder);

// Which folder of which boot of which host this is: "gpu-17 5a1b… 2049:77". A folder that was copied has the
// identity of the other one, and is noticed by this.
std::string place_of(const std::string& folder);

// Of no cluster, if the folder is new.
Result<keeper::Membership> read_membership(const std::string& folder);

// The membership as it is written down. Any thread: a rank must not start before its cluster is on the disk,
// whichever of them comes first.
class MembershipNotes {
 public:
  // `cluster` is what the folder says; "" if it says nothing.
  MembershipNotes(std::string folder, std::string cluster)
      : folder_(std::move(folder)), cluster_(std::move(cluster)) {}

  // Each writes what is not there already.
  Result<> write_cluster(const std::string& cluster);
  Result<> write(const keeper::Membership& membership);

 private:
  Result<> write_jobs_seen(std::uint64_t jobs_seen);

  const std::string folder_;
  std::mutex mutex_;
  std::string cluster_;
  std::optional<std::uint64_t> jobs_seen_;  // the file may be behind what the folder tells otherwise
};

// The devices in the order of their indices, as ranks that run hold them; nothing is known of them but that
// they were there. None if the folder is new.
std::vector<cluster::Device> read_devices(const std::string& folder);
Result<> write_devices(const std::string& folder, const std::vector<cluster::Device>& devices);

// Moves the ranks of a cluster, with their logs, to FOLDER/other-cluster-ID, which is returned.
Result<std::string> put_ranks_aside(const std::string& folder, const std::string& cluster);

// What was put aside so: the folders of ranks, and folders of clusters in which there is none any more.
struct Aside {
  std::vector<std::string> ranks;
  std::vector<std::string> empty;
};
Aside find_aside(const std::string& folder);

// The folder of a rank has gone: with the last of its cluster that of the cluster goes, if it was put aside.
void forget_aside(const std::string& folder, const std::string& rank);

}  // namespace tutti::agent
