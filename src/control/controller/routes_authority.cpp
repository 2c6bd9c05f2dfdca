// The cluster's authority, and how another one follows it without a moment in which somebody is not trusted.
// First the next one is made and trusted beside the one that signs, and nodes are asked to renew their
// certificates, with which they hear of it. When all of them have, it signs, and the controller shows a
// certificate of it; nodes are asked again. When none has a certificate of the old one, that is trusted no
// more.
#include <array>
#include <mutex>

#include "base/clock/clock.hpp"
#include "base/log/log.hpp"
#include "control/controller/call.hpp"
#include "control/controller/registrar.hpp"
#include "control/wire/membership.hpp"

namespace tutti::controller {
namespace {

constexpr std::size_t named_nodes_max = 20;

std::string names_of(const std::vector<std::string>& nodes) {
  std::string text;
  for (std::size_t at = 0; at < std::min(nodes.size(), named_nodes_max); ++at)
    text += (text.empty() ? "" : ", ") + nodes[at];
  if (nodes.size() > named_nodes_max)
    text += " and " + std::to_string(nodes.size() - named_nodes_max) + " more";
  return text;
}

void answer_authority(const Call& call, const Registrar& registrar) {
  call.answer(wire::authority_json(registrar.standing(now_on_the_wall())));
}

void show_authority(const Call& call) {
  if (const Registrar* registrar = call.registrar(); registrar != nullptr) answer_authority(call, *registrar);
}

struct Step {
  const char* what;
  Result<> (*take)(const std::string& folder);
};
constexpr Step make_next{
    "another one is made, and trusted beside the one that signs",
    [](const std::string& folder) { return make_next_authority(folder, now_on_the_wall()); }};
constexpr Step use_next{"the next one signs, and the one before it is trusted still", use_next_authority};
constexpr Step drop_old{"the old one is trusted no more", drop_old_authority};

cluster::Noted noted(std::string what, std::string refused = "") {
  return {.verb = "rotate",
          .object = "authority",
          .what = std::move(what),
          .who = {},
          .refused = std::move(refused)};
}

// The files are written beside the loop, and what has come of them is used on it.
void take_step(const Call& call, Registrar& registrar, const Step& step) {
  call.hand_to(call.services().desk, [call, &registrar, folder = registrar.folder(), step] {
    static std::mutex one_at_a_time;
    const std::lock_guard lock(one_at_a_time);
    const auto done = step.take(folder);
    auto read = done ? read_authorities(folder) : Result<std::optional<Authorities>>(done.error());
    call.services().hub.post([call, &registrar, what = step.what, read = std::move(read)] {
      Result<> used = read ? Result<>() : Result<>(read.error());
      if (used) used = *read ? registrar.use(**read) : failed("the authority is gone");
      if (!used) {
        call.note(noted(what, used.error().text()));
        return call.refuse(used.error());
      }
      log::warning("the authority of the cluster is {} now, and {} are trusted", registrar.fingerprint(),
                   (*read)->next.empty() && (*read)->old.empty() ? "no others" : "two");
      call.note(noted(registrar.fingerprint() + " signs"));
      call.services().hub.ask_to_renew();
      answer_authority(call, registrar);
    });
  });
}

// Nobody gets another authority in secret, on a disk that takes its files and no line of the log: the line
// comes first.
void begin_step(const Call& call, Registrar& registrar, const Step& step) {
  call.note_first(noted(step.what), [call, &registrar, step] { take_step(call, registrar, step); });
}

void rotate_authority(const Call& call) {
  Registrar* registrar = call.registrar();
  if (registrar == nullptr) return;
  const auto finish = wire::decode_rotation(call.body());
  if (!finish) return call.refuse(finish.error());
  const wire::AuthorityStanding standing = registrar->standing(now_on_the_wall());
  const Authorities& all = registrar->authorities();
  if (!all.old.empty()) {
    if (!*finish) return answer_authority(call, *registrar);
    if (!standing.behind.empty())
      return call.refuse(
          invalid("the old authority is needed still: " + names_of(standing.behind) +
                  (standing.behind.size() == 1 ? " has" : " have") + " a certificate of it")
              .remedy("wait until they have renewed theirs, or `tutti nodes revoke` those that are "
                      "gone for good"),
          409);
    return begin_step(call, *registrar, drop_old);
  }
  if (*finish)
    return call.refuse(invalid("there is no old authority that could be dropped")
                           .remedy("`tutti controller ca rotate` makes a new one, step by step"),
                       409);
  if (all.next.empty()) return begin_step(call, *registrar, make_next);
  if (!standing.behind.empty()) return answer_authority(call, *registrar);
  begin_step(call, *registrar, use_next);
}

}  // namespace

std::span<const Route> authority_routes() {
  static const std::array table{
      Route{.method = "GET",
            .path = "/authority",
            .need = Need::operate,
            .answer = {"AuthorityView"},
            .summary = "The authority that signs for the cluster, and how far another one is that follows",
            .handle = show_authority},
      Route{.method = "POST",
            .path = "/authority/rotate",
            .request = {"RotateRequest"},
            .answer = {"AuthorityView"},
            .summary = "Takes the next step to another authority; {finish: true} drops the old one",
            .handle = rotate_authority},
  };
  return table;
}

}  // namespace tutti::controller
