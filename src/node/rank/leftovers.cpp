#include "node/rank/leftovers.hpp"

#include <signal.h>

#include "node/rank/process.hpp"

namespace tutti::rank {
namespace {

// The pid of a shim that has gone is nobody else's while its session has members; if it is, they are
// strangers.
bool is_taken_by_another(const ShimProcess& shim) {
  const auto process = read_process(shim.pid);
  return process && process->start_time != shim.start_time;
}

}  // namespace

bool kill_leftovers(const Hold& hold, const ShimProcess& shim) {
  if (hold.exists()) {
    hold.kill();
    return hold.empty();
  }
  if (shim.pid <= 0 || is_taken_by_another(shim)) return true;
  auto family = session_of(shim.pid);
  if (is_alive(shim)) {
    const auto descendants = descendants_of(shim.pid);
    family.insert(family.end(), descendants.begin(), descendants.end());
  }
  for (const pid_t pid : family) kill(pid, SIGKILL);
  return family.empty();
}

void kill_shim(const ShimProcess& shim) {
  if (is_alive(shim)) kill(shim.pid, SIGKILL);
}

void wake_shim(const ShimProcess& shim) {
  const auto process = read_process(shim.pid);
  if (process && process->start_time == shim.start_time && (process->state == 'T' || process->state == 't'))
    kill(shim.pid, SIGCONT);
}

}  // namespace tutti::rank
