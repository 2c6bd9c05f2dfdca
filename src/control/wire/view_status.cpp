#include "control/wire/convert.hpp"
#include "control/wire/json.hpp"
#include "control/wire/use.hpp"
#include "control/wire/views.hpp"

namespace tutti::wire {

std::string status_json(const cluster::State& state, const StoreHealth& health, std::string_view version) {
  proto::StatusView view;
  view.set_version(std::string(version));
  std::int64_t share_free = 0;
  for (const auto& [name, node] : state.nodes) {
    view.set_nodes(view.nodes() + 1);
    view.set_gpus(view.gpus() + static_cast<std::int32_t>(node.inventory.devices.size()));
    if (cluster::node_state(state, node) != cluster::NodeState::ready) continue;
    view.set_nodes_ready(view.nodes_ready() + 1);
    for (const auto& device : node.inventory.devices) share_free += device.silent ? 0 : sched::whole_share;
    for (const auto& [device, share] : use_of(state, node).shares) {
      const auto at = static_cast<std::size_t>(device);
      if (at < node.inventory.devices.size() && !node.inventory.devices[at].silent) share_free -= share;
    }
  }
  view.set_gpus_free(gpus_of(share_free));
  view.set_jobs_running(static_cast<std::int32_t>(state.holding.size()));
  view.set_jobs_queued(static_cast<std::int32_t>(state.active.size() - state.holding.size()));
  view.set_jobs_finished(static_cast<std::int32_t>(state.jobs.size() - state.active.size()));
  view.set_store_ok(health.ok);
  view.set_store_error(health.error);
  return print(view);
}

}  // namespace tutti::wire
