// What was measured between nodes: the last measurement, and a new one in its place.
#include <array>

#include "control/controller/call.hpp"
#include "control/wire/requests.hpp"

namespace tutti::controller {
namespace {

void show_fabric(const Call& call) {
  call.show([](const auto& state, const auto&, const auto&) { return wire::fabric_json(*state.fabric); });
}

void set_fabric(const Call& call) {
  auto links = wire::decode_fabric(call.body());
  if (!links) return call.refuse(links.error());
  call.change(cluster::FabricMeasured{std::move(*links)});
}

}  // namespace

std::span<const Route> fabric_routes() {
  static_assert(cluster::fabric_links_max == 16'256, "the summary below says how many there may be");
  static const std::array table{
      Route{.method = "GET",
            .path = "/fabric",
            .need = Need::viewer,
            .answer = {"FabricView"},
            .summary = "The links between nodes as last measured; a slow one says why in reason",
            .handle = show_fabric},
      Route{.method = "PUT",
            .path = "/fabric",
            .need = Need::operate,
            .body_bytes_max = 8 << 20,  // every link with two names of the longest kind
            .request = {"FabricRequest"},
            .answer = {"SubmitReply"},
            .summary = "Replaces all links by a new measurement, at most 16256 of them",
            .handle = set_fabric},
  };
  return table;
}

}  // namespace tutti::controller
