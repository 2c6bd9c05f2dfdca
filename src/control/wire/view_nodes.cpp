#include "control/wire/convert.hpp"
#include "control/wire/json.hpp"
#include "control/wire/use.hpp"
#include "control/wire/views.hpp"

namespace tutti::wire {
namespace {

std::int32_t to_mib(Bytes bytes) { return static_cast<std::int32_t>(bytes.count() >> 20); }

void fill_node(const cluster::State& state, const cluster::Node& node, const Use& use,
               proto::NodeView& view) {
  view.set_name(node.name);
  view.set_state(std::string(cluster::name_of(cluster::node_state(state, node))));
  view.set_location(node.location);
  view.set_address(node.address);
  for (std::size_t at = 0; at < node.inventory.devices.size(); ++at) {
    const auto& device = node.inventory.devices[at];
    const auto used = use.shares.find(static_cast<std::int32_t>(at));
    auto* added = view.add_devices();
    added->set_index(static_cast<std::int32_t>(at));
    added->set_model(device.model);
    added->set_memory_mib(to_mib(device.memory));
    const std::int32_t in_use = used == use.shares.end() ? 0 : used->second;
    added->set_share_free(device.silent || node.lost ? 0 : sched::whole_share - in_use);
    if (device.silent) added->set_silent(true);
    if (device.uuid.starts_with(cluster::fake_uuid_prefix)) added->set_fake(true);
  }
  view.set_cpus(node.inventory.cpus);
  view.set_cpus_free(node.lost ? 0 : node.inventory.cpus - use.cpus);
  view.set_memory_mib(to_mib(node.inventory.memory));
  view.set_memory_free_mib(node.lost ? 0 : to_mib(node.inventory.memory - use.memory));
  if (node.agent_pid > 0) view.set_agent_pid(static_cast<std::int32_t>(node.agent_pid));
  add_strings(use.jobs, *view.mutable_jobs());
  view.set_reason(cluster::reason_of(node));
  if (!node.lacks.empty()) view.set_lacks(node.lacks);
  view.set_kept_mib(to_mib(node.kept));
  if (node.inventory.watch_max > 0) view.set_watch_max(node.inventory.watch_max);
}

}  // namespace

std::string node_json(const cluster::State& state, const cluster::Node& node) {
  proto::NodeView view;
  fill_node(state, node, use_of(state, node), view);
  return print(view);
}

std::string removed_node_json(const std::string& name) {
  proto::NodeView view;
  view.set_name(name);
  view.set_state("removed");
  return print(view);
}

std::string nodes_json(const cluster::State& state, const NodeQuery& query) {
  proto::NodeList list;
  for (auto at = state.nodes.upper_bound(query.after); at != state.nodes.end(); ++at) {
    if (static_cast<std::size_t>(list.nodes_size()) == query.limit) {
      list.set_next(list.nodes(list.nodes_size() - 1).name());
      break;
    }
    fill_node(state, at->second, use_of(state, at->second), *list.add_nodes());
  }
  return print(list);
}

}  // namespace tutti::wire
