// Reads bytes along a grammar. All ways that the bytes so far may have gone are one state; states are made
// when they are first reached, and what follows from them is remembered: a memory that can be thrown away at
// any time but for the states that somebody is in. Where there is no memory for more, what is known stays
// true. One thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "serve/constrain/grammar.hpp"

namespace tutti::serve {

inline constexpr std::size_t machine_ways_max = 4'096;           // of one state
inline constexpr std::uint64_t machine_step_work_max = 200'000;  // to read one byte
inline constexpr std::int32_t machine_depth_max = 64;            // deep calls inside one another

class Machine {
 public:
  using State = std::int32_t;
  static constexpr State dead = -1;
  static constexpr State beyond = -2;  // there may be such texts, and to read them takes more than the bounds

  Machine(std::shared_ptr<const Grammar> grammar, NodeId start);

  State start() const { return start_; }
  // Dead if no text of the language goes on like this.
  State next(State state, std::uint8_t byte);
  // The bytes so far are a whole text of the language; and longer ones begin with them.
  bool accepts(State state) const { return states_[static_cast<std::size_t>(state)].accepts; }
  bool goes_on(State state) const { return !states_[static_cast<std::size_t>(state)].ways.empty(); }
  std::size_t states() const { return states_.size(); }
  std::uint64_t work() const { return work_; }  // edges looked at so far
  std::size_t bytes() const { return bytes_; }  // of memory, about
  // Forgets all states but the start and these, which get other names; what is no state stays what it is.
  void keep_only(std::span<State* const> kept);

 private:
  // Without any state.
  explicit Machine(std::shared_ptr<const Grammar> grammar) : grammar_(std::move(grammar)) {}

  using StackId = std::int32_t;
  static constexpr StackId bottom = -1;
  static constexpr State not_known = -3;
  struct Frame {
    NodeId node = 0;  // where it goes on
    StackId below = bottom;
    std::int32_t depth = 0;  // deep calls up to here
  };
  using Way = std::pair<NodeId, StackId>;  // nodes that have edges, sorted
  struct StateEntry {
    std::vector<Way> ways;
    bool accepts = false;
    std::array<State, 256> next;
  };

  // Ways that were reached; forgotten in no time, for it is asked for every state.
  class Reached {
   public:
    void clear();
    bool insert(const Way& way);  // false if it is there
    std::size_t size() const { return size_; }

   private:
    struct Slot {
      Way way;
      std::uint32_t turn = 0;  // it is taken if this is the present one
    };
    Slot& slot_of(const Way& way);

    std::vector<Slot> slots_ = std::vector<Slot>(64);  // a power of two, at most half of them taken
    std::size_t size_ = 0;
    std::uint32_t turn_ = 1;
  };

  State state_of(std::vector<Way> ways);
  State add(bool accepts, std::vector<Way> ways);
  StackId push(NodeId node, StackId below, bool deep);

  std::shared_ptr<const Grammar> grammar_;
  std::vector<Frame> frames_;
  std::map<std::pair<Way, bool>, StackId> frame_ids_;
  std::vector<StateEntry> states_;
  std::map<std::pair<bool, std::vector<Way>>, State> state_ids_;
  Reached reached_;
  State start_ = dead;
  std::uint64_t work_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace tutti::serve
