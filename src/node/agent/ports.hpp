// Ports for the gangs whose rank 0 is on this node. Some are kept free in advance, so that a gang gets one
// that nobody else has; from its release until the gang has ended it stays claimed, so that no other agent of
// this host, of whatever cluster, hands it out. Where programs have taken the whole range, the system is
// asked for others. Used by the agent's loop only.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/files/descriptor.hpp"
#include "base/prng.hpp"
#include "base/result.hpp"
#include "control/cluster/model.hpp"

namespace tutti::agent {

// Below the ports that systems hand out by themselves, and below those that the controller guesses when it
// has handed out all that an agent kept (cluster/attempts.cpp).
constexpr std::int32_t gang_port_min = 20'000;
constexpr std::int32_t gang_port_count = 5'000;
constexpr std::size_t gang_ports_kept = 16;

struct PortRange {
  std::int32_t first = gang_port_min;
  std::int32_t count = gang_port_count;
};

class Ports {
 public:
  explicit Ports(PortRange range = {});

  // Those that are kept free now.
  std::vector<std::int32_t> free() const;
  // The gang's rank 0 may bind to the one that is given back from now on: this one, or another if somebody
  // uses it, or soon would, and `may_choose`.
  Result<std::int32_t> take(cluster::JobId job, std::int32_t attempt, std::int32_t port,
                            bool may_choose = false);
  void give_back(cluster::JobId job, std::int32_t attempt) { taken_.erase({job, attempt}); }

 private:
  struct Held {
    files::FileDescriptor port;  // bound, so that no other program gets it
    files::FileDescriptor
        claim;  // bound to a name that all agents of the host use for it, unless it was taken
  };
  struct Taken {
    std::int32_t port = 0;
    files::FileDescriptor claim;
  };

  using Found = std::pair<std::int32_t, Held>;

  static Result<Held> hold(std::int32_t port);
  Result<Found> hold_any_of_the_system() const;
  bool is_taken(std::int32_t port) const;
  Result<Held> hold_kept(std::int32_t port);
  // One that is free now and not among those that are kept.
  Result<Found> find();
  void fill();

  PortRange range_;
  Prng prng_;
  bool is_crowded_ = false;  // others have the range
  std::map<std::int32_t, Held> kept_;
  std::map<std::pair<cluster::JobId, std::int32_t>, Taken> taken_;
};

}  // namespace tutti::agent
