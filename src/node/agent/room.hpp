// How many ranks this node can watch: each takes a file that the agent has open, each attempt one more for
// its port, and an agent that has no more to open can neither hear of ends nor kill. The controller knows
// how many that are and sends no more; what comes all the same, because others are not forgotten yet or the
// controller is of an earlier version, waits in the order in which it came, and nobody is to blame. An
// attempt is let in as a whole: two that wait for each other's ranks would wait for ever. So would two gangs
// that are each in on one node and wait on the other, and everybody behind one that is in nobody's way
// elsewhere: each waits for a while only, and is the first in line when it comes back. Used by the agent's
// loop only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "base/time.hpp"
#include "control/cluster/model.hpp"
#include "net/http/loop.hpp"

namespace tutti::agent {

// As long as it waits, its other ranks hold devices on their nodes.
constexpr Duration room_patience = 10s;

class Room {
 public:
  using Attempt = std::pair<cluster::JobId, std::int32_t>;

  Room(net::Loop& loop, std::size_t files_max, Duration patience = room_patience)
      : loop_(loop), files_max_(files_max), patience_(patience) {}
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;

  // It is in now, or has to wait. Who is in already gets in with more.
  bool enter(Attempt attempt, std::size_t ranks);
  // Calls `begin` once it is in: from here, or from the leave() of another. One that is not in after a while
  // leaves, and `give_up` is called instead. Only for what can be held.
  void wait(Attempt attempt, std::size_t ranks, std::function<void()> begin, std::function<void()> give_up);
  // So many of its ranks are started, or found running: what it entered for is counted no more.
  void start(Attempt attempt, std::size_t ranks);
  // It is over, or does not want to wait any longer.
  void leave(Attempt attempt);

  std::size_t files() const { return files_; }
  std::size_t waiting() const { return waiting_.size(); }
  bool is_waiting(Attempt attempt) const;
  // More ranks were found running than would be let in.
  bool is_short() const { return files_ > files_max_; }
  // There is room for it, whoever waits.
  bool fits(Attempt attempt, std::size_t ranks) const;
  // There would be room for it if it were alone.
  bool can_hold(Attempt attempt, std::size_t ranks) const;
  std::size_t files_max() const { return files_max_; }

 private:
  struct Taken {
    std::size_t entered_for = 0;
    std::size_t started = 0;
  };
  struct Waiting {
    Attempt attempt;
    std::size_t ranks = 0;
    std::function<void()> begin;
    std::function<void()> give_up;
    std::shared_ptr<net::Loop::Handle> timer;
  };

  Taken& add(Attempt attempt);
  bool comes_back(const Waiting& one) const;
  void let_in();
  void give_up(Attempt attempt);

  net::Loop& loop_;
  const std::size_t files_max_;
  const Duration patience_;
  std::size_t files_ = 0;  // of all that are in
  std::map<Attempt, Taken> inside_;
  std::deque<Waiting> waiting_;          // who comes back first
  std::deque<cluster::JobId> given_up_;  // and have not been in since: the last of them
  bool letting_in_ = false;
};

}  // namespace tutti::agent
