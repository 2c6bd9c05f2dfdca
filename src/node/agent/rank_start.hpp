// The start of one rank as a Linux process under a shim: its folder, its specification, its environment. Any
// thread; it waits for the disk.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/files/descriptor.hpp"
#include "base/result.hpp"
#include "control/wire/messages.hpp"
#include "node/agent/membership.hpp"
#include "node/rank/hold.hpp"
#include "node/rank/isolation.hpp"
#include "node/rank/rank_folder.hpp"

namespace tutti::agent {

// Asked once, before the process is made: false if nobody wants it any more.
using MayRun = std::function<bool()>;

struct RankOrder {
  std::shared_ptr<const wire::StartRanks> attempt;  // shared by all its ranks
  std::size_t rank = 0;                             // of those it names
  std::string folder;
  std::string workdir;
  std::string cgroup;
  std::string checkpoints;
  bool shared_checkpoints = false;  // with all nodes: what a job has saved must be there
  std::string tutti_program;
  std::string cluster;         // whose it is, "" for none
  std::size_t open_files = 0;  // what this agent was given
  std::shared_ptr<MembershipNotes> notes;
  std::shared_ptr<const rank::Isolation> isolation = {};  // none: it runs as this agent does
};

struct StartedShim {
  rank::ShimProcess process;
  files::FileDescriptor pidfd;  // none if it has ended already
  rank::Hold hold{""};
  Duration grace{};
  std::string in_its_place;  // what was where its folder is: to be removed, "" for nothing
};

// The mark in a rank's folder that its end is acknowledged.
std::string acknowledged_mark(const std::string& rank_folder);

Result<StartedShim> start_rank(const RankOrder& order, const MayRun& may_run);

}  // namespace tutti::agent
