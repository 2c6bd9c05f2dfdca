// Nodes: listed, looked at, drained, taken back, forgotten.
#include <algorithm>
#include <array>

#include "base/text.hpp"
#include "control/controller/call.hpp"
#include "control/wire/messages.hpp"
#include "control/wire/requests.hpp"

namespace tutti::controller {
namespace {

constexpr std::int64_t page_nodes_max = 1000;

std::string node_argument(const Call& call) {
  return valid_utf8(call.argument("name").substr(0, wire::node_name_bytes_max));
}

void list_nodes(const Call& call) {
  const auto limit = call.number("limit", page_nodes_max);
  if (!limit || *limit < 1) return call.refuse(invalid("limit is a whole number above 0"));
  const wire::NodeQuery query{.after = call.text("after"),
                              .limit = static_cast<std::size_t>(std::min(*limit, page_nodes_max))};
  call.show([query](const auto& state, const auto&, const auto&) { return wire::nodes_json(state, query); });
}

void show_node(const Call& call) {
  call.show([name = node_argument(call)](const auto& state, const auto&, const auto&) -> Result<std::string> {
    const auto found = state.nodes.find(name);
    if (found == state.nodes.end())
      return invalid("there is no node '" + name + "'").remedy("`tutti nodes` lists them");
    return wire::node_json(state, found->second);
  });
}

void drain(const Call& call) {
  const auto now = wire::decode_drain(call.body());
  if (!now) return call.refuse(now.error());
  call.change(cluster::Drain{node_argument(call), *now}, 404);
}

void resume(const Call& call) { call.change(cluster::Resume{node_argument(call)}, 404); }

void remove_node(const Call& call) { call.change(cluster::RemoveNode{node_argument(call)}); }

}  // namespace

std::span<const Route> node_routes() {
  static const std::array table{
      Route{.method = "GET",
            .path = "/nodes",
            .need = Need::viewer,
            .query = {{"limit", "N", "nodes a page, at most 1000"},
                      {"after", "NAME", "the `next` of the page before"}},
            .answer = {"NodeList"},
            .summary = "Nodes with their devices, by name, a page at a time",
            .handle = list_nodes},
      Route{.method = "GET",
            .path = "/nodes/{name}",
            .need = Need::viewer,
            .answer = {"NodeView"},
            .summary = "One node",
            .handle = show_node},
      Route{.method = "POST",
            .path = "/nodes/{name}/drain",
            .need = Need::operate,
            .request = {"DrainRequest"},
            .answer = {"SubmitReply"},
            .summary = "Lets nothing new land on a node; {now: true} moves its gangs at once",
            .handle = drain},
      Route{.method = "POST",
            .path = "/nodes/{name}/resume",
            .need = Need::operate,
            .answer = {"SubmitReply"},
            .summary = "Lets a node take work again",
            .handle = resume},
      Route{.method = "DELETE",
            .path = "/nodes/{name}",
            .need = Need::operate,
            .answer = {"SubmitReply"},
            .summary = "Forgets a node that is lost and has no ranks",
            .handle = remove_node},
  };
  return table;
}

}  // namespace tutti::controller
