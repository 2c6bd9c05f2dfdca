// Moves bytes over several links at once, in both directions, without blocking on any of them: the engine
// under all collectives between hosts. One thread.
//
// Transfers of one link and direction go in the order they were added; each may depend on others through
// `ready` (how much may be sent yet) and `consumed` (how much of a bounded window was used up), which the
// operation moves forward in its progress function. Long transfers are striped over all sockets of their
// link.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <vector>

#include "comm/links.hpp"
#include "comm/outcome.hpp"

namespace tutti::comm {

// The part of a transfer that has gone through, as one socket after the other sees it.
class Stripes {
 public:
  Stripes(std::size_t bytes, std::size_t sockets);

  std::size_t sockets() const { return cursors_.size(); }
  // Where the socket goes on, and how far it may go without a break. 0 bytes: it has nothing left.
  struct Run {
    std::size_t at = 0;
    std::size_t bytes = 0;
  };
  Run next(std::size_t socket) const;
  void advance(std::size_t socket, std::size_t bytes);
  // Everything before this has gone through.
  std::size_t prefix() const { return prefix_; }
  bool done() const { return prefix_ == bytes_; }

  static constexpr std::size_t stripe_bytes = std::size_t{256} << 10;

 private:
  std::size_t bytes_;
  std::vector<std::size_t> cursors_;
  std::size_t prefix_ = 0;
};

struct Sending {
  const std::byte* data = nullptr;
  Stripes stripes;
  std::size_t ready = 0;  // bytes from the beginning that may leave
};

struct Receiving {
  std::byte* data = nullptr;
  Stripes stripes;
  std::size_t window = 0;    // bytes at `data`, used as a ring; 0: all of the transfer
  std::size_t consumed = 0;  // of a window
  std::size_t received() const { return stripes.prefix(); }
};

class Pump {
 public:
  // `index` names the link in outcomes.
  void add_link(int index, Link* link);

  // References stay valid as long as the pump.
  Sending& send(int index, const std::byte* data, std::size_t bytes, std::size_t ready);
  Receiving& receive(int index, std::byte* data, std::size_t bytes, std::size_t window = 0);

  // Until everything is through. `progress` is called whenever something may have moved; its failure ends the
  // run.
  using Progress = std::function<Outcome()>;
  Outcome run(const Limits& limits, const Progress& progress);

 private:
  struct Lane {
    int index = 0;
    Link* link = nullptr;
    std::deque<Sending> sends;
    std::deque<Receiving> receives;
    std::size_t sent = 0;  // transfers that are complete
    std::size_t received = 0;
  };
  enum class Moved { nothing, something, closed };

  Moved push(Lane& lane);
  Moved pull(Lane& lane);
  Outcome sleep(const Limits& limits);
  bool done() const;
  int blocking() const;

  std::map<int, Lane> lanes_;
};

}  // namespace tutti::comm
