#include "node/agent/rank_end.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "control/wire/messages.hpp"
#include "node/rank/log_segments.hpp"
#include "node/rank/rank_folder.hpp"

namespace tutti::agent {
namespace {

constexpr std::size_t detail_lines = 20;
constexpr std::size_t detail_bytes = 4096;

// What a reader of `tutti show` needs to see of a rank that failed.
std::string describe_failure(const std::string& folder, const rank::RankExit& exit) {
  std::string detail = exit.detail;
  // Who hung or died, by the judgement of all ranks, says more than what this one printed.
  if (const std::string verdict = rank::read_verdict(folder); !verdict.empty()) {
    detail += (detail.empty() ? "" : "; ") + verdict;
  }
  auto lines = rank::last_lines(folder, detail_lines, detail_bytes);
  if (lines && !lines->empty())
    detail += (detail.empty() ? "" : "; ") + ("last lines of its log:\n" + *lines);
  return std::string(cut_utf8(valid_utf8(detail), wire::detail_bytes_max));
}

}  // namespace

Instant believed_end(const RankEnd& left, const SeenEnd& seen) {
  if (left.at == Instant() || seen.shim_killed) return seen.heard_at;
  return std::min(seen.heard_at, std::max(left.at, seen.lived_at));
}

std::optional<RankEnd> end_in(const std::string& folder) {
  // A link in its place is the rank's, and not followed.
  if (!rank::is_own_folder(folder)) return std::nullopt;
  const auto exit = rank::read_exit(folder);
  if (!exit || !*exit) return std::nullopt;
  const std::int32_t code = (*exit)->exit_code;
  // One that has done its work may have a copy of its log that is cut.
  RankEnd end{{cluster::RankState::exited, code,
               code == 0 ? std::string(cut_utf8(valid_utf8((*exit)->detail), wire::detail_bytes_max))
                         : describe_failure(folder, **exit)},
              rank::exit_written_at(folder)};
  end.status.by_signal = (*exit)->by_signal;
  end.status.no_program = (*exit)->no_program;
  // Its job may start again, as after the loss of a node.
  end.status.vanished = (*exit)->starved;
  // The job is not tried here again. The rank may have written it: nobody else goes without the node for
  // that.
  end.status.node_fault = end.status.no_room = (*exit)->node_fault;
  return end;
}

cluster::RankStatus without_witness(cluster::RankStatus status) {
  status.vanished = status.vanished || status.node_fault;
  status.node_fault = status.no_room = false;
  return status;
}

}  // namespace tutti::agent
