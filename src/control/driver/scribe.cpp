#include "control/driver/scribe.hpp"

#include <utility>

#include "control/cluster/deeds.hpp"
#include "control/driver/turns.hpp"

namespace tutti::driver {

std::optional<audit::Entry> Scribe::begin(const cluster::State& state, const Item& item,
                                          const people::Name& who) const {
  auto deed = cluster::deed_of(item.event);
  if (!deed) return std::nullopt;
  audit::Entry entry;
  entry.who = who.empty() ? std::move(deed->who) : who;
  if (item.by) entry.token = item.by->token;
  entry.from = item.from;
  entry.verb = std::move(deed->verb);
  entry.object = std::move(deed->object);
  entry.what = std::move(deed->what);
  entry.before = cluster::standing_of(state, item.event);
  return entry;
}

void Scribe::end(const cluster::State& state, const Item& item, audit::Entry entry,
                 const Result<std::vector<cluster::JobId>>& reply, Instant now) {
  if (!reply) return refused(std::move(entry), reply.error(), now);
  if (const auto* noted = std::get_if<cluster::Noted>(&item.event);
      noted != nullptr && !noted->refused.empty())
    return refused(std::move(entry), forbidden(noted->refused), now);
  if (std::holds_alternative<cluster::Submit>(item.event)) entry.object = cluster::jobs_text(*reply);
  entry.after = cluster::standing_of(state, item.event);
  entries_.push_back(std::move(entry));
}

void Scribe::refused(std::optional<audit::Entry> entry, const Error& why, Instant now) {
  if (!entry) return;
  if (!all_refusals_) all_refusals_.emplace(all_refusals_max, now);
  if (refusals_.take(entry->from, now) != Duration::zero() || all_refusals_->take(now) != Duration::zero()) {
    ++left_out_;
    return;
  }
  entry->refused = why.text();
  entries_.push_back(*std::move(entry));
}

std::string Scribe::write(audit::Head& head, Instant date) {
  std::string lines;
  for (audit::Entry& entry : std::exchange(entries_, {})) {
    entry.at = date;
    entry.left_out = std::exchange(left_out_, 0);
    lines += audit::next_line(entry, head);
  }
  return lines;
}

}  // namespace tutti::driver
