// Connections between agents and the controller, as TCP gives them: what is sent on one arrives in order,
// late, or not at all from some point on; each side learns of a break in its own time. What was sent before a
// side closed may still arrive, also when the agent has long opened another connection. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>

#include "base/prng.hpp"
#include "lab/sim/agenda.hpp"

namespace tutti::sim {

enum class Side { agent, controller };

constexpr Side other(Side side) { return side == Side::agent ? Side::controller : Side::agent; }

class Network {
 public:
  using Id = std::uint64_t;  // in the order in which they were opened
  struct Calls {
    std::function<void(Id, std::size_t node, Side to, const std::string& frame)> message;
    std::function<void(Id, std::size_t node, Side side)> closed;
  };

  Network(Agenda& agenda, Prng prng, std::size_t nodes) : agenda_(agenda), prng_(prng), blocked_(nodes) {}

  void set_calls(Calls calls) { calls_ = std::move(calls); }
  // How often a frame comes twice, and how late frames come.
  void set_doubling(double chance) { doubling_ = chance; }
  void set_delay(Duration delay_max) { delay_max_ = delay_max; }
  // How often what is under way on a connection is held up when the connection is given up.
  void set_lingering(double chance) { lingering_ = chance; }

  Id open(std::size_t node);
  void send(Id id, Side from, const std::string& frame);
  // The side is done with it; what it has sent still arrives.
  void close(Id id, Side side);
  // The side is gone without a word: the other one finds out after a long silence.
  void vanish(Id id, Side side);
  // It breaks: some of what is under way is lost, and both sides find out.
  void cut(Id id);

  // Nothing passes between the node and the controller; what is sent waits, and sides may lose patience.
  void block(std::size_t node);
  void unblock(std::size_t node);
  bool blocked(std::size_t node) const { return blocked_.at(node); }

 private:
  struct Pipe {
    struct Frame {
      std::string bytes;
      Duration due{};
      bool end = false;
    };
    std::deque<Frame> frames;  // under way, in order
    bool pumping = false;      // a delivery of the first one is on the agenda
    bool broken = false;       // nothing is taken any more
  };
  struct Connection {
    std::size_t node = 0;
    std::array<bool, 2> open{true, true};
    std::array<Pipe, 2> to;  // by the side that receives
  };

  static std::size_t at(Side side) { return side == Side::agent ? 0 : 1; }
  Duration some_delay();
  void put(Connection& connection, Id id, Side to, std::string bytes, bool end);
  void pump(Id id, Side to);
  void schedule_pump(Connection& connection, Id id, Side to, Duration delay);
  void linger(Pipe& pipe);
  void lose_side(Id id, Side side);
  void forget_if_over(Id id);

  Agenda& agenda_;
  Prng prng_;
  Calls calls_;
  double doubling_ = 0;
  double lingering_ = 0;
  Duration delay_max_ = 5ms;
  Id next_id_ = 1;
  std::map<Id, Connection> connections_;
  std::deque<bool> blocked_;
};

}  // namespace tutti::sim
