#include <algorithm>

#include "control/wire/convert.hpp"
#include "control/wire/json.hpp"
#include "control/wire/use.hpp"
#include "control/wire/views.hpp"

namespace tutti::wire {

namespace {

// The longest and the shortest of some ages, of which 0 is for ever.
class Ages {
 public:
  void add(Duration age) {
    const Duration length = age == Duration::zero() ? Duration::max() : age;
    longest_ = std::max(longest_, length);
    shortest_ = std::min(shortest_, length);
  }
  double longest() const { return seconds_of(longest_); }
  double shortest() const { return seconds_of(shortest_); }

 private:
  static double seconds_of(Duration length) { return length == Duration::max() ? 0 : in_seconds(length); }

  Duration longest_{};
  Duration shortest_ = Duration::max();
};

void fill_kept_by_agents(const cluster::State& state, proto::KeptView& view) {
  Bytes logs_max;
  std::size_t logs_ranks_max = 0;
  Ages logs;
  Ages checkpoints;
  bool is_known = false;
  for (const auto& [name, node] : state.nodes) {
    if (!node.keeps) continue;
    is_known = true;
    logs_max += node.keeps->logs_max;
    logs_ranks_max += node.keeps->logs_ranks_max;
    logs.add(node.keeps->logs_age_max);
    checkpoints.add(node.keeps->checkpoints_age_max);
  }
  if (!is_known) return;
  view.set_logs_bytes_max(static_cast<double>(logs_max.count()));
  view.set_logs_ranks_max(static_cast<double>(logs_ranks_max));
  view.set_logs_age_s(logs.longest());
  view.set_logs_age_min_s(logs.shortest());
  view.set_checkpoints_age_s(checkpoints.longest());
  view.set_checkpoints_age_min_s(checkpoints.shortest());
}

void fill_kept(const cluster::State& state, const Kept& kept, proto::KeptView& view) {
  view.set_jobs_max(static_cast<std::int32_t>(kept.retention.jobs_max));
  view.set_jobs_age_s(in_seconds(kept.retention.jobs_age_max));
  view.set_jobs_ranks(static_cast<double>(state.ended.ranks()));
  view.set_jobs_ranks_max(static_cast<double>(kept.retention.ranks_max));
  Bytes logs;
  for (const auto& [name, node] : state.nodes) {
    if (node.lost) view.set_nodes_lost(view.nodes_lost() + 1);
    logs += node.kept;
  }
  view.set_logs_bytes(static_cast<double>(logs.count()));
  fill_kept_by_agents(state, view);
  view.set_nodes_age_s(in_seconds(kept.retention.nodes_age_max));
  view.set_store_bytes(static_cast<double>(kept.store.count()));
  view.set_blobs_bytes(static_cast<double>(kept.blobs.count()));
  view.set_blobs_bytes_max(static_cast<double>(kept.blobs_max.count()));
  view.set_blobs_age_s(in_seconds(kept.blobs_age_max));
  view.set_audit_bytes(static_cast<double>(kept.audit.count()));
  view.set_audit_bytes_max(static_cast<double>(kept.audit_max.count()));
  view.set_audit_age_s(in_seconds(kept.audit_age_max));
  view.set_jobs_bytes(static_cast<double>(state.bytes.finished() + state.ended.said_bytes()));
  view.set_jobs_bytes_max(static_cast<double>(cluster::kept_bytes_max));
  view.set_unfinished_bytes(static_cast<double>(state.bytes.unfinished()));
  view.set_unfinished_bytes_max(static_cast<double>(cluster::unfinished_bytes_max));
  view.set_unfinished_bytes_of_user_max(static_cast<double>(cluster::unfinished_bytes_of_user_max));
}

}  // namespace

std::string status_json(const cluster::State& state, const StoreHealth& health, std::string_view version,
                        const Kept& kept, const StatusTroubles& troubles) {
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
  if (!troubles.secrets.empty()) view.set_secrets_error(troubles.secrets);
  if (!troubles.authority.empty()) view.set_authority_error(troubles.authority);
  fill_kept(state, kept, *view.mutable_kept());
  return print(view);
}

}  // namespace tutti::wire
