// What all parts of one simulated world share: its time, its chance, its network, its memory of what
// happened, and the checks. One thread, one seed.
#pragma once

#include <string>

#include "base/prng.hpp"
#include "lab/sim/agenda.hpp"
#include "lab/sim/checks.hpp"
#include "lab/sim/network.hpp"
#include "lab/sim/trace.hpp"

namespace tutti::sim {

// For tests of the checks: a part of the system that does not keep its promise.
enum class Sabotage {
  none,
  agent_forgets_its_disk,  // and starts again what it finds there
  disk_lies,               // it confirms what it has not stored
  visible_before_stored,   // a controller that dies in a commit has sent and answered already
  old_connections_speak,   // what was sent before a reconnect is believed after it
};

// How bad things are while there are faults; all zero when they have stopped.
struct Weather {
  double start_fails = 0;       // a rank cannot be started
  double start_stalls = 0;      // or takes its time
  double dies_in_start = 0;     // the agent dies while it starts a rank
  double dies_in_forget = 0;    // or while it notes that an end is acknowledged
  double dies_after_hello = 0;  // or while its Hello is under way
  double prepare_fails = 0;     // a shipped folder cannot be fetched
  double reply_lost = 0;        // a client does not get its answer
};

struct World {
  World(std::uint64_t seed, std::size_t nodes, bool keep_history)
      : prng(seed), trace(keep_history), network(agenda, prng.fork(), nodes) {}

  void note(const std::string& what) { trace.add(agenda.now(), what); }
  Duration between(Duration low, Duration high) { return Duration(prng.between(low.count(), high.count())); }

  Agenda agenda;
  Prng prng;
  Trace trace;
  Network network;
  Checks checks;
  Weather weather;
  Sabotage sabotage = Sabotage::none;
};

}  // namespace tutti::sim
