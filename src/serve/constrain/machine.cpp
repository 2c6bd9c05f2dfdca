#include "serve/constrain/machine.hpp"

#include <algorithm>
#include <set>

#include "base/index.hpp"

namespace tutti::serve {

Machine::Machine(std::shared_ptr<const Grammar> grammar, NodeId start) : grammar_(std::move(grammar)) {
  start_ = state_of({{start, bottom}});
}

Machine::StackId Machine::push(NodeId node, StackId below, bool deep) {
  const Way way{node, below};
  const auto [place, is_new] = frame_ids_.try_emplace({way, deep}, static_cast<StackId>(frames_.size()));
  if (is_new)
    frames_.push_back({node, below, (below == bottom ? 0 : frames_[at(below)].depth) + (deep ? 1 : 0)});
  return place->second;
}

// Follows everything that takes no byte, and gives the state that this is.
Machine::State Machine::state_of(std::vector<Way> ways) {
  std::set<Way> reached(ways.begin(), ways.end());
  std::vector<Way> kept;
  bool accepts = false;
  const auto reach = [&](Way way) {
    if (reached.size() > machine_ways_max) {
      full_ = true;
    } else if (reached.insert(way).second) {
      ways.push_back(way);
    }
  };
  while (!ways.empty()) {
    const auto [node, stack] = ways.back();
    ways.pop_back();
    const Grammar::Node& here = (*grammar_)[node];
    work_ += 1 + here.skips.size() + here.calls.size();
    if (!here.edges.empty()) kept.emplace_back(node, stack);
    for (const NodeId to : here.skips) reach({to, stack});
    for (const Grammar::Call& call : here.calls) {
      const std::int32_t depth = stack == bottom ? 0 : frames_[at(stack)].depth;
      if (!call.deep || depth < machine_depth_max) reach({call.part, push(call.after, stack, call.deep)});
    }
    if (!here.ends_part) continue;
    if (stack == bottom) {
      accepts = true;
    } else {
      reach({frames_[at(stack)].node, frames_[at(stack)].below});
    }
  }
  if (kept.empty() && !accepts) return dead;
  std::sort(kept.begin(), kept.end());
  auto key = std::pair(accepts, std::move(kept));
  if (const auto known = state_ids_.find(key); known != state_ids_.end()) return known->second;
  if (states_.size() >= machine_states_max) {
    full_ = true;
    return dead;
  }
  const auto state = static_cast<State>(states_.size());
  StateEntry& entry = states_.emplace_back();
  entry.ways = key.second;
  entry.accepts = accepts;
  entry.next.fill(not_known);
  state_ids_.emplace(std::move(key), state);
  return state;
}

Machine::State Machine::next(State state, std::uint8_t byte) {
  if (state == dead) return dead;
  if (const State known = states_[at(state)].next[byte]; known != not_known) return known;
  std::vector<Way> ways;
  for (const auto& [node, stack] : states_[at(state)].ways) {
    work_ += (*grammar_)[node].edges.size();
    for (const Grammar::Edge& edge : (*grammar_)[node].edges) {
      if (byte >= edge.first && byte <= edge.last) ways.emplace_back(edge.to, stack);
    }
  }
  std::sort(ways.begin(), ways.end());
  ways.erase(std::unique(ways.begin(), ways.end()), ways.end());
  const State next = ways.empty() ? dead : state_of(std::move(ways));
  states_[at(state)].next[byte] = next;
  return next;
}

}  // namespace tutti::serve
