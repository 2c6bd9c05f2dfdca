// People who serve models on the simulated cluster, and the gateways before them, whose words come late,
// twice or never while there are faults. Then everything is calm: what is served must come to answer, and a
// request that waits must wake what sleeps. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>

#include "lab/sim/virtual_controller.hpp"
#include "lab/sim/world.hpp"

namespace tutti::sim {

class Services {
 public:
  Services(World& world, VirtualController& controller, std::uint64_t seed)
      : world_(world), controller_(controller), prng_(seed) {}

  // The gateways begin to tell.
  void begin();
  // Makes a service, updates it, scales it, promotes, rolls back or stops it.
  void act();
  // There are no faults any more: from now on words come in time.
  void faults_stopped() { is_calm_ = true; }
  // After the faults: everything that is asked for answers; "" if so, else what does not.
  std::string not_answering() const;
  // Everything is stopped, again and again until it is.
  void clean_up();

 private:
  struct Counted {
    std::uint64_t requests = 0;
    std::uint64_t failures = 0;
  };

  void serve(const std::string& name, bool is_update);
  void ask(const std::string& what, cluster::Event event);
  void tell(const std::string& gateway);
  cluster::GatewayTold word_of(const std::string& gateway);
  void send(cluster::GatewayTold word);

  World& world_;
  VirtualController& controller_;
  Prng prng_;  // of their own: what they do is no chance of the world's
  bool is_calm_ = false;
  std::map<std::tuple<std::string, std::string, std::int32_t>, Counted> counted_;  // by gateway and version
};

}  // namespace tutti::sim
