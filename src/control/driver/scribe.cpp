#include "control/driver/scribe.hpp"

#include <algorithm>
#include <utility>

#include "control/cluster/deeds.hpp"
#include "control/driver/turns.hpp"

namespace tutti::driver {
namespace {

std::string key_of(const audit::Entry& entry) {
  return entry.who.empty() ? "at " + entry.from : "by " + entry.who;
}

// Without the name of the thing: of a path its first three parts.
std::string kind_of(const std::string& object) {
  if (!object.starts_with('/')) return object.substr(0, object.find(' '));
  std::size_t end = 0;
  for (int part = 0; part < 3 && end != std::string::npos; ++part) end = object.find('/', end + 1);
  return object.substr(0, end);
}

}  // namespace

std::optional<audit::Entry> Scribe::begin(const cluster::State& state, const Item& item,
                                          const people::Name& who) const {
  auto deed = cluster::deed_of(item.event);
  if (!deed) return std::nullopt;
  audit::Entry entry;
  // Which node asks to join is what it says itself: until it is believed it is nobody.
  const bool is_believed = !std::holds_alternative<cluster::Join>(item.event);
  entry.who = who.empty() && is_believed ? deed->who : who;
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
  if (std::holds_alternative<cluster::Join>(item.event)) entry.who = cluster::deed_of(item.event)->who;
  if (std::holds_alternative<cluster::Submit>(item.event)) entry.object = cluster::jobs_text(*reply);
  entry.after = cluster::standing_of(state, item.event);
  entries_.push_back(std::move(entry));
}

void Scribe::refused(std::optional<audit::Entry> entry, const Error& why, Instant now) {
  if (!entry) return;
  const bool is_person = !entry->who.empty();
  Share& share = is_person ? persons_ : nobodies_;
  if (!share.all) share.all.emplace(all_refusals_max, now);
  const std::string whose = key_of(*entry);
  const std::string kind = whose + " " + entry->verb + " " + kind_of(entry->object);
  const bool is_first = share.kinds.take(kind, now) == Duration::zero();
  const bool may = is_first || share.each.take(whose, now) == Duration::zero();
  // What is the first of its kind of a person is a line, whatever all others do.
  if (!(is_first && is_person) && (!may || share.all->take(now) != Duration::zero()))
    return leave_out(*entry);
  entry->refused = why.text();
  entries_.push_back(*std::move(entry));
}

void Scribe::leave_out(const audit::Entry& entry) {
  const std::string whose = key_of(entry);
  const bool is_one_more = left_out_.size() >= left_out_of_max && !left_out_.contains(whose);
  LeftOut& left = left_out_[is_one_more ? std::string() : whose];
  if (left.count == 0 && !is_one_more) {
    left.who = entry.who;
    left.from = entry.from;
  }
  left.count += std::max<std::uint64_t>(entry.left_out, 1);
}

void Scribe::tell_left_out(Instant now) {
  if (left_out_.empty() || (left_out_told_ != Instant() && now - left_out_told_ < left_out_told_every))
    return;
  left_out_told_ = now;
  for (auto& [whose, left] : std::exchange(left_out_, {}))
    entries_.push_back({.at = {},
                        .who = std::move(left.who),
                        .from = std::move(left.from),
                        .verb = "ask",
                        .object = "for more",
                        .refused = std::to_string(left.count) + " more times: of these there is no line",
                        .left_out = left.count});
}

std::string Scribe::write(audit::Head& head, Instant date) {
  std::string lines;
  for (audit::Entry& entry : std::exchange(entries_, {})) {
    entry.at = date;
    lines += audit::next_line(entry, head);
    if (!entry.refused.empty()) written_.push_back(std::move(entry));
  }
  return lines;
}

void Scribe::lost() {
  for (const audit::Entry& entry : std::exchange(written_, {})) leave_out(entry);
}

}  // namespace tutti::driver
