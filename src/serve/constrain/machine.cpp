#include "serve/constrain/machine.hpp"

#include <algorithm>

#include "base/index.hpp"
#include "base/prng.hpp"

namespace tutti::serve {
namespace {

constexpr std::size_t map_node_bytes = 64;  // what a map needs beside an entry, about
// What these take, in edges that could be looked at meanwhile:
constexpr std::uint64_t state_work = 64;  // to make a state
constexpr std::uint64_t way_work = 8;     // to follow a way that takes no byte

}  // namespace

Machine::Machine(std::shared_ptr<const Grammar> grammar, NodeId start) : grammar_(std::move(grammar)) {
  start_ = state_of({{start, bottom}});
}

Machine::StackId Machine::push(NodeId node, StackId below, bool deep) {
  const std::pair<Way, bool> key{{node, below}, deep};
  if (const auto known = frame_ids_.find(key); known != frame_ids_.end()) return known->second;
  const auto id = static_cast<StackId>(frames_.size());
  frames_.push_back({node, below, (below == bottom ? 0 : frames_[at(below)].depth) + (deep ? 1 : 0)});
  bytes_ += sizeof(Frame) + sizeof(Way) + map_node_bytes;
  frame_ids_.emplace(key, id);  // last: where there is no memory for it, nobody has heard of the frame
  return id;
}

void Machine::Reached::clear() {
  size_ = 0;
  if (++turn_ != 0) return;
  std::fill(slots_.begin(), slots_.end(), Slot());
  turn_ = 1;
}

Machine::Reached::Slot& Machine::Reached::slot_of(const Way& way) {
  const auto both = static_cast<std::uint64_t>(static_cast<std::uint32_t>(way.first)) << 32U |
                    static_cast<std::uint32_t>(way.second);
  std::size_t place = mixed(both) & (slots_.size() - 1);
  while (slots_[place].turn == turn_ && slots_[place].way != way) place = (place + 1) & (slots_.size() - 1);
  return slots_[place];
}

bool Machine::Reached::insert(const Way& way) {
  if (2 * size_ >= slots_.size()) {
    const std::vector<Slot> before = std::exchange(slots_, std::vector<Slot>(2 * slots_.size()));
    for (const Slot& slot : before) {
      if (slot.turn == turn_) slot_of(slot.way) = slot;
    }
  }
  Slot& slot = slot_of(way);
  if (slot.turn == turn_) return false;
  slot = {way, turn_};
  ++size_;
  return true;
}

// Follows everything that takes no byte, and gives the state that this is.
Machine::State Machine::state_of(std::vector<Way> ways) {
  reached_.clear();
  for (const Way& way : ways) reached_.insert(way);
  std::vector<Way> kept;
  bool accepts = false;
  const auto reach = [&](Way way) {
    if (reached_.insert(way)) ways.push_back(way);
  };
  while (!ways.empty()) {
    if (reached_.size() > machine_ways_max) return beyond;
    const auto [node, stack] = ways.back();
    ways.pop_back();
    const Grammar::Node& here = (*grammar_)[node];
    work_ += way_work + here.skips.size() + here.calls.size();
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
  return add(accepts, std::move(kept));
}

Machine::State Machine::add(bool accepts, std::vector<Way> ways) {
  work_ += ways.size();  // they are sorted, and compared with those of other states
  std::pair<bool, std::vector<Way>> key{accepts, std::move(ways)};
  if (const auto known = state_ids_.find(key); known != state_ids_.end()) return known->second;
  const auto id = static_cast<State>(states_.size());
  StateEntry entry{.ways = key.second, .accepts = accepts};
  entry.next.fill(not_known);
  states_.push_back(std::move(entry));
  work_ += state_work;
  bytes_ += sizeof(StateEntry) + map_node_bytes + 2 * key.second.size() * sizeof(Way);
  state_ids_.emplace(std::move(key), id);  // last, as above
  return id;
}

Machine::State Machine::next(State state, std::uint8_t byte) {
  if (state < 0) return state;
  if (const State known = states_[at(state)].next[byte]; known != not_known) return known;
  std::vector<Way> ways;
  // The bytes around this one that lead to the same: no edge begins or ends among them.
  std::uint8_t first = 0;
  std::uint8_t last = 255;
  const std::uint64_t before = work_;
  for (const auto& [node, stack] : states_[at(state)].ways) {
    work_ += (*grammar_)[node].edges.size();
    if (work_ - before > machine_step_work_max) return beyond;
    for (const Grammar::Edge& edge : (*grammar_)[node].edges) {
      if (byte < edge.first) {
        last = std::min(last, static_cast<std::uint8_t>(edge.first - 1));
      } else if (byte > edge.last) {
        first = std::max(first, static_cast<std::uint8_t>(edge.last + 1));
      } else {
        ways.emplace_back(edge.to, stack);
        first = std::max(first, edge.first);
        last = std::min(last, edge.last);
      }
    }
  }
  std::sort(ways.begin(), ways.end());
  ways.erase(std::unique(ways.begin(), ways.end()), ways.end());
  const State next = ways.empty() ? dead : state_of(std::move(ways));
  if (next == beyond) return beyond;
  auto& known = states_[at(state)].next;
  std::fill(known.begin() + first, known.begin() + last + 1, next);
  return next;
}

void Machine::keep_only(std::span<State* const> kept) {
  Machine fresh(grammar_);
  constexpr StackId not_moved = -2;
  std::vector<StackId> moved(frames_.size(), not_moved);
  std::vector<StackId> above;
  const auto move_stack = [&](StackId stack) {
    above.clear();
    for (; stack != bottom && moved[at(stack)] == not_moved; stack = frames_[at(stack)].below)
      above.push_back(stack);
    StackId below = stack == bottom ? bottom : moved[at(stack)];
    for (; !above.empty(); above.pop_back()) {
      const Frame& frame = frames_[at(above.back())];
      const std::int32_t depth_below = frame.below == bottom ? 0 : frames_[at(frame.below)].depth;
      below = moved[at(above.back())] = fresh.push(frame.node, below, frame.depth > depth_below);
    }
    return below;
  };
  std::vector<State> names(states_.size(), not_known);
  const auto name_of = [&](State state) {
    if (state < 0 || names[at(state)] != not_known) return state < 0 ? state : names[at(state)];
    std::vector<Way> ways = states_[at(state)].ways;
    for (Way& way : ways) way.second = move_stack(way.second);
    std::sort(ways.begin(), ways.end());
    return names[at(state)] = fresh.add(states_[at(state)].accepts, std::move(ways));
  };
  fresh.start_ = name_of(start_);
  for (const State* const state : kept) static_cast<void>(name_of(*state));
  // From here on nothing takes memory.
  fresh.work_ += work_;
  for (State* const state : kept) *state = name_of(*state);
  *this = std::move(fresh);
}

}  // namespace tutti::serve
