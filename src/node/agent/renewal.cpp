#include "node/agent/renewal.hpp"

#include <algorithm>
#include <functional>
#include <utility>

#include "base/clock/clock.hpp"
#include "base/log/log.hpp"
#include "node/agent/papers.hpp"

namespace tutti::agent {
namespace {

// The clock may be set meanwhile: it is not waited for long at once.
constexpr Duration look_every_max = 1min;
constexpr Duration look_every_min = 200ms;
constexpr Duration show_again_after = 1s;
// Of what is left of the certificate, that much passes between two tries.
constexpr int tries_part = 20;
// Of its life, so much passes between the first and the last of all nodes that are asked to renew: ten
// seconds of a day.
constexpr int turns_part = 8640;

// How long until the next look.
Duration next_look(const pki::Identity& identity, Instant now) {
  return std::clamp(renewal_due(identity) - now, look_every_min, look_every_max);
}

// So that not all of them come at the same moment.
Duration own_turn(const pki::Identity& identity) {
  const std::size_t part = std::hash<std::string>()(identity.key_id) % 256;
  return (identity.until - identity.signed_at) / turns_part * static_cast<std::int64_t>(part) / 256;
}

// What is wrong is said once a try; with how long there is to mend it.
std::string why_not(const Error& error, const pki::Identity& identity, Instant now) {
  std::string text = "cannot renew the certificate of this node, which is good until " +
                     format_instant(identity.until) + ": " + error.text();
  if (now >= identity.until)
    text =
        "the certificate of this node has expired at " + format_instant(identity.until) + ": " + error.text();
  return error.remedy().empty() ? text : text + "; " + error.remedy();
}

}  // namespace

void Renewal::start() {
  if (!controller_.certificate_file.empty()) look();
}

void Renewal::renew_soon() {
  if (controller_.certificate_file.empty()) return;
  wish_ = Wish::asked;
  if (lane_.under_way() == 0) look();
}

// What was asked for meanwhile is not put off.
void Renewal::wait(Duration time) {
  if (wish_ == Wish::asked) time = look_every_min;
  timer_ = loop_.after(time, [this] { look(); });
}

void Renewal::look() {
  const Wish wish = std::exchange(wish_, Wish::none);
  lane_.run(
      [this, wish, controller = controller_, folder = folder_]() -> Lane::Then {
        const auto papers = read_papers(folder);
        const Instant now = now_on_the_wall();
        if (!papers || !*papers) {
          if (!papers) log::error("{}", papers.error().text());
          return [this] { wait(look_every_max); };
        }
        const bool is_due = now >= renewal_due(**papers);
        if (!is_due && wish == Wish::asked)
          return [this, time = own_turn(**papers)] {
            wish_ = Wish::its_turn;
            wait(time);
          };
        if (!is_due && wish == Wish::none) return [this, time = next_look(**papers, now)] { wait(time); };
        const auto renewed = renew_papers(controller, folder);
        if (renewed) {
          log::info("this node has a new certificate");
          return [this, again = renewed->again] {
            if (!again) return look();
            wish_ = Wish::its_turn;
            wait(show_again_after);
          };
        }
        log::warning("{}", why_not(renewed.error(), **papers, now));
        const Duration left = std::max((*papers)->until - now, Duration::zero());
        return
            [this, time = std::clamp(left / tries_part, look_every_min * 5, look_every_max)] { wait(time); };
      },
      [this](const std::string& why) {
        log::error("the certificate of this node is not looked after: {}", why);
        wait(look_every_max);
      });
}

}  // namespace tutti::agent
