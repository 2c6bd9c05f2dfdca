#include "control/driver/hearing.hpp"

#include <algorithm>
#include <utility>

namespace tutti::driver {

// An agent of which nothing was read for a while although something waits to be is not silent. If the loop is
// late itself, or that is so of many agents, the loop is behind, and whoever else seems silent may be so for
// the same reason. One by itself may see to it that it is not read: it is excused for so long, and nobody
// else is. One that is read, and whose message is not whole, needs no excuse.
Hearing::Verdict Hearing::judge(const std::vector<Line>& lines, Instant now) {
  const bool is_late = now - std::exchange(judged_at_, now) > agent_pause_max;
  bool has_unread = false;
  Verdict verdict;
  std::map<Connection, Read> read;
  for (const Line& line : lines) {
    const auto before = read_.find(line.connection);
    Read of_it = before == read_.end() ? Read() : before->second;
    if (of_it.reads != line.reads) of_it = {line.reads, now};
    read.emplace(line.connection, of_it);
    const Duration pause = now - std::max(line.heard_at, of_it.at);
    if (pause <= agent_pause_max || !line.has_unread()) continue;
    has_unread = true;
    if (pause <= excused_max && !line.node.empty()) verdict.excused.emplace_back(line.node);
  }
  read_ = std::move(read);
  const bool are_many = verdict.excused.size() >= unread_nodes_min &&
                        verdict.excused.size() * cluster::mass_silence_part > lines.size();
  if ((is_late && has_unread) || are_many) return {.awake = false};
  return verdict;
}

}  // namespace tutti::driver
