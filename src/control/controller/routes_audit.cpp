// Who did what, and who was refused what: the audit log.
#include <algorithm>
#include <array>

#include "base/text.hpp"
#include "control/controller/audit_keeper.hpp"
#include "control/controller/call.hpp"

namespace tutti::controller {
namespace {

constexpr std::int64_t page_max = 5'000;
constexpr std::size_t instant_bytes_max = 24;  // 2026-11-15T09:05:00.250Z

bool is_instant_or_beginning(std::string_view text) {
  return text.size() <= instant_bytes_max && std::all_of(text.begin(), text.end(), [](char letter) {
           return (letter >= '0' && letter <= '9') ||
                  std::string_view("-:.TZ").find(letter) != std::string::npos;
         });
}

void show_audit(const Call& call) {
  const auto after = call.number("after", 0);
  const auto limit = call.number("limit", 1'000);
  if (!after || *after < 0) return call.refuse(invalid("after is the number of a line"));
  if (!limit || *limit < 1) return call.refuse(invalid("limit is a whole number above 0"));
  audit::Query query{.after = static_cast<std::uint64_t>(*after),
                     .since = call.text("since"),
                     .who = valid_utf8(call.text("user").substr(0, audit::text_bytes_max)),
                     .lines_max = static_cast<std::size_t>(std::min(*limit, page_max))};
  if (!is_instant_or_beginning(query.since))
    return call.refuse(
        invalid("since is no time").remedy("such as 2026-11-15T09:05:00.000Z, or the beginning of one"));
  call.hand_to(call.services().audit_desk, [call, query = std::move(query)] {
    if (call.is_over()) return;
    const auto page = call.services().audit.read(query);
    if (!page) return call.refuse_for_now(page.error());
    call.answer(wire::audit_json(*page));
  });
}

}  // namespace

std::span<const Route> audit_routes() {
  static const std::array table{
      Route{
          .method = "GET",
          .path = "/audit",
          .is_question = true,
          .query = {{"after", "N", "lines with higher numbers"},
                    {"since", "TIME", "not before that time in UTC, which may be cut short: 2026-11-15"},
                    {"user", "NAME", "only what he asked for"},
                    {"limit", "N", "lines a page, at most 5000"}},
          .answer = {"AuditPage"},
          .summary = "What was changed and what was refused, line by line; `next` is the next page's `after`",
          .handle = show_audit},
  };
  return table;
}

}  // namespace tutti::controller
