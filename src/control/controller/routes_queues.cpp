// Queues: listed, made, changed, removed.
#include <array>

#include "base/clock/clock.hpp"
#include "base/text.hpp"
#include "control/controller/call.hpp"
#include "control/wire/requests.hpp"

namespace tutti::controller {
namespace {

// A name that is too long stays so, and is refused as such.
std::string queue_argument(const Call& call) {
  return valid_utf8(call.argument("name").substr(0, cluster::queue_name_max + 1));
}

void list_queues(const Call& call) {
  call.show([](const auto& state, const auto&, const auto& caller) {
    return wire::queues_json(state, now_on_the_wall(), caller);
  });
}

void set_queue(const Call& call) {
  auto queue = wire::decode_queue(queue_argument(call), call.body());
  if (!queue) return call.refuse(queue.error());
  call.change(std::move(*queue));
}

void remove_queue(const Call& call) { call.change(cluster::RemoveQueue{queue_argument(call)}); }

}  // namespace

std::span<const Route> queue_routes() {
  static const std::array table{
      Route{.method = "GET",
            .path = "/queues",
            .need = Need::viewer,
            .answer = {"QueueList"},
            .summary = "Queues and who uses what; the parts of a queue come after it",
            .handle = list_queues},
      Route{.method = "PUT",
            .path = "/queues/{name}",
            .need = Need::queue_admin,
            .request = {"QueueRequest"},
            .answer = {"SubmitReply"},
            .summary = "Creates a queue, or changes what the body names; a limit of -1 is none",
            .handle = set_queue},
      Route{.method = "DELETE",
            .path = "/queues/{name}",
            .need = Need::queue_admin,
            .answer = {"SubmitReply"},
            .summary = "Removes a queue; refused while it has parts or unfinished jobs",
            .handle = remove_queue},
  };
  return table;
}

}  // namespace tutti::controller
