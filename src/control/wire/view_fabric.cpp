#include "control/wire/convert.hpp"
#include "control/wire/json.hpp"
#include "control/wire/views.hpp"

namespace tutti::wire {

std::string fabric_json(const cluster::Fabric& fabric) {
  const auto slow = cluster::slow_links(fabric);
  proto::FabricView list;
  for (const auto& [ends, link] : fabric) {
    auto* view = list.add_links();
    view->set_from(link.from);
    view->set_to(link.to);
    view->set_latency_us(static_cast<double>(link.latency.count()) / ns_per_us);
    view->set_bandwidth_gb_s(static_cast<double>(link.bandwidth.count()) / bytes_per_gb);
    view->set_measured_at(format_instant(link.measured_at));
    const auto found = slow.find(ends);
    view->set_slow(found != slow.end());
    if (found != slow.end()) view->set_reason(found->second.text());
  }
  return print(list);
}

}  // namespace tutti::wire
