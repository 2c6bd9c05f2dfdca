// Secrets: set, listed, removed, and their key changed. There is no request that reads a value.
#include <algorithm>
#include <array>

#include "base/text.hpp"
#include "base/visible.hpp"
#include "control/cluster/authorize.hpp"
#include "control/cluster/limits.hpp"
#include "control/controller/call.hpp"
#include "control/controller/vault.hpp"
#include "control/wire/views.hpp"

namespace tutti::controller {
namespace {

using Of = cluster::SecretId::Of;

constexpr std::int64_t secrets_page_max = 1000;

// Of a queue or a user that is named, else of whoever asks. Whether he may is looked at later.
Result<cluster::SecretId> id_of(const Call& call) {
  cluster::SecretId id;
  id.name = valid_utf8(call.argument("name").substr(0, cluster::secret_name_bytes_max + 1));
  if (auto named = cluster::check_secret_name(id.name); !named) return std::move(named).error();
  const std::string queue = valid_utf8(call.text("queue").substr(0, cluster::queue_name_max + 1));
  const std::string user = valid_utf8(call.text("user").substr(0, cluster::user_bytes_max + 1));
  if (!queue.empty() && !user.empty()) return invalid("a secret is of a user or of a queue, and not of both");
  if (!queue.empty()) {
    id.of = Of::queue;
    id.owner = queue;
    return id;
  }
  const people::Caller& caller = *call.by().caller;
  id.owner = user.empty() ? caller.name : user;
  if (caller.root && user.empty())
    return invalid("whose secret is it?")
        .remedy("the cluster's own token stands for nobody: name a user or a queue");
  if (id.owner.size() > cluster::user_bytes_max || !is_visible_line(id.owner))
    return invalid("that is no name of a user");
  return id;
}

// The keys are on a disk, and what is in use is the core's: both may take their time.
void set_secret(const Call& call) {
  auto id = id_of(call);
  if (!id) return call.refuse(id.error());
  if (call.body().empty()) return call.refuse(invalid("a secret has a byte at least"));
  call.hand_to(call.services().desk, [call, id = *std::move(id)] {
    auto sealed = call.services().vault.seal(id, call.body());
    if (!sealed) return call.refuse(sealed.error());
    call.change(*std::move(sealed));
  });
}

void remove_secret(const Call& call) {
  auto id = id_of(call);
  if (!id) return call.refuse(id.error());
  call.change(cluster::RemoveSecret{*std::move(id)}, 404);
}

void list_secrets(const Call& call) {
  const auto limit = call.number("limit", secrets_page_max);
  if (!limit || *limit < 1) return call.refuse(invalid("limit is a whole number above 0"));
  wire::SecretQuery query{.after = call.text("after"),
                          .limit = static_cast<std::size_t>(std::min(*limit, secrets_page_max))};
  call.show(
      [query, &vault = call.services().vault](const auto& state, const auto&, const people::Caller& caller) {
        wire::SecretQuery seen = query;
        seen.error = vault.trouble(state);
        seen.shows = [&](const cluster::SecretId& id) { return cluster::may_see(caller, id); };
        return wire::secrets_json(state, seen);
      });
}

void rotate_key(const Call& call) {
  call.hand_to(call.services().desk, [call] {
    Vault& vault = call.services().vault;
    auto key = vault.make_key();
    if (!key) return call.refuse(key.error());
    std::string answer = wire::secret_key_json(*key);
    call.change(cluster::UseSecretKey{*std::move(key)}, std::move(answer), [&vault] { vault.settle(); });
  });
}

}  // namespace

std::span<const Route> secret_routes() {
  static const std::array table{
      Route{.method = "GET",
            .path = "/secrets",
            .need = Need::user,
            .query = {{"limit", "N", "secrets a page, at most 1000"},
                      {"after", "NEXT", "the `next` of the page before"}},
            .answer = {"SecretList"},
            .summary =
                "Your secrets, and those of queues that your jobs may use: names and sizes, never values",
            .handle = list_secrets},
      Route{.method = "PUT",
            .path = "/secrets/{name}",
            .need = Need::user,
            .body_bytes_max = cluster::secret_bytes_max,
            .query = {{"queue", "QUEUE", "of this queue, for all who submit there; left out, your own"},
                      {"user", "USER", "with the cluster's own token: whose it is"}},
            .request = {"the value", Format::bytes},
            .answer = {"SubmitReply"},
            .summary = "Sets a secret, which no request reads back; jobs ask for it by its name",
            .handle = set_secret},
      Route{.method = "DELETE",
            .path = "/secrets/{name}",
            .need = Need::user,
            .query = {{"queue", "QUEUE", "of this queue; left out, your own"},
                      {"user", "USER", "of this user, if you are an admin"}},
            .answer = {"SubmitReply"},
            .summary = "Removes a secret; jobs that ask for it do not start any more",
            .handle = remove_secret},
      Route{
          .method = "POST",
          .path = "/secret-key/rotate",
          .answer = {"SecretKeyView"},
          .summary = "Makes another key; secrets are sealed under it from then on, those that are there soon",
          .handle = rotate_key},
  };
  return table;
}

}  // namespace tutti::controller
