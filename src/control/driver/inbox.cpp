#include "control/driver/inbox.hpp"

#include <algorithm>
#include <utility>

namespace tutti::driver {
namespace {

// What a report takes beside its text, roughly.
constexpr std::size_t report_bytes = 64;

const cluster::Submit* submit_of(const Item& item) {
  const auto* submit = std::get_if<cluster::Submit>(&item.event);
  return submit == nullptr || submit->specs.empty() ? nullptr : submit;
}

// Nobody has looked yet whether they are alike, so that each is counted.
std::size_t bytes_of(const cluster::Submit& submit) {
  const cluster::JobSpec& first = submit.specs.front();
  std::size_t bytes = cluster::shared_bytes_of(first);
  for (const cluster::JobSpec& spec : submit.specs) {
    bytes += sizeof(cluster::JobSpec) + cluster::own_bytes_of(spec);
    if (!spec.command.is_one_with(first.command) || !spec.env.is_one_with(first.env) ||
        !spec.after.is_one_with(first.after) || !spec.secrets.is_one_with(first.secrets))
      bytes += cluster::shared_bytes_of(spec);
  }
  return bytes;
}

std::size_t bytes_of(const cluster::Hello& hello) {
  std::size_t bytes = sizeof hello + hello.inventory.devices.size() * sizeof(cluster::Device);
  for (const cluster::RankReport& report : hello.ranks) bytes += sizeof report + report.status.detail.size();
  return bytes;
}

std::size_t effort_of(const Item& item) {
  if (const auto* submit = submit_of(item)) return 1 + submit->specs.size() / elements_per_effort;
  const auto* cancel = std::get_if<cluster::Cancel>(&item.event);
  const auto* release = std::get_if<cluster::Release>(&item.event);
  const bool whole_array =
      (cancel != nullptr && cancel->whole_array) || (release != nullptr && release->whole_array);
  return whole_array ? effort_of_whole_array : 1;
}

// The next place of the queue, which goes again unless it is taken: where there is no memory for the rest of
// what is counted with it, nothing has changed.
class Place {
 public:
  explicit Place(std::deque<Item>& items) : items_(items) { items_.emplace_back(); }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
  ~Place() {
    if (!is_taken_) items_.pop_back();
  }

  Item& take(Item item) {
    is_taken_ = true;
    return items_.back() = std::move(item);
  }

 private:
  std::deque<Item>& items_;
  bool is_taken_ = false;
};

}  // namespace

bool Inbox::add(Item& item) {
  if (auto* reported = std::get_if<cluster::Reported>(&item.event)) {
    add_reports(*reported);
    return true;
  }
  if (items_.size() >= waiting_items_max) {
    // Agents do not repeat what they have said unless they are asked.
    if (!item.reply) missed_ = true;
    return false;
  }
  if (const auto* hello = std::get_if<cluster::Hello>(&item.event)) {
    add_hello(item, *hello);
    return true;
  }
  Place place(items_);
  if (const auto* submit = submit_of(item);
      submit != nullptr && !submit_bytes_.take(submit->specs.front().user, bytes_of(*submit)))
    return false;
  if (item.reply) ++asked_;
  place.take(std::move(item));
  return true;
}

// It tells everything that was said before, also by another one that still waits.
void Inbox::add_hello(Item& item, const cluster::Hello& hello) {
  const auto known = hellos_.find(hello.node);
  const std::size_t before =
      known == hellos_.end() ? 0 : bytes_of(std::get<cluster::Hello>(known->second->event));
  const std::size_t bytes = hellos_bytes_ - before + bytes_of(hello);
  if (bytes > hellos_waiting_bytes_max) {
    missed_nodes_.insert(hello.node);
    return;
  }
  Place place(items_);
  drop_reports(hello.node);
  Item*& last = hellos_[hello.node];
  if (last != nullptr) {
    if (last->reply) --asked_;
    *last = {cluster::Tick{}, nullptr, [](cluster::State&, const wire::StoreHealth&) {}};
  }
  hellos_bytes_ = bytes;
  if (item.reply) ++asked_;
  last = &place.take(std::move(item));
}

void Inbox::drop_reports(const std::string& node) {
  const auto known = reports_.find(node);
  if (known == reports_.end()) return;
  ++replaced_[node];  // first: there may be no memory for it
  reports_bytes_ -= known->second.bytes;
  reports_.erase(known);
}

void Inbox::add_reports(cluster::Reported& reported) {
  auto known = reports_.find(reported.node);
  if (known == reports_.end()) {
    Place place(items_);
    Item entry{cluster::Reported(reported.node, std::vector<cluster::RankReport>()), {}, {}};
    known = reports_.try_emplace(reported.node).first;
    place.take(std::move(entry));
  }
  Reports& reports = known->second;
  for (cluster::RankReport& report : reported.ranks) {
    const Reports::Key key{report.job, report.attempt, report.rank, report.status.state};
    if (const auto before = reports.newest.find(key); before != reports.newest.end()) {
      // A rank ends once: what is said of its end again is no news.
      if (report.status.state == cluster::RankState::exited) continue;
      const std::size_t bytes_before = before->second->status.detail.size();
      reports.bytes += report.status.detail.size() - bytes_before;
      reports_bytes_ += report.status.detail.size() - bytes_before;
      before->second->status = std::move(report.status);
      before->second->ran = report.ran;
      before->second->heard_at = report.heard_at;
      continue;
    }
    const std::size_t bytes = report_bytes + report.status.detail.size();
    if (reports.waiting.size() >= reports_waiting_max || reports.bytes + bytes > reports_waiting_bytes_max ||
        reports_bytes_ + bytes > all_reports_waiting_bytes_max) {
      missed_nodes_.insert(reported.node);
      continue;
    }
    cluster::RankReport& waits = reports.waiting.emplace_back(std::move(report));
    reports.bytes += bytes;
    reports_bytes_ += bytes;
    reports.newest[key] = &waits;
  }
}

void Inbox::take_reports(cluster::Reported& reported, std::size_t& room) {
  if (const auto replaced = replaced_.find(reported.node); replaced != replaced_.end()) {
    if (--replaced->second == 0) replaced_.erase(replaced);
    return;
  }
  const auto known = reports_.find(reported.node);
  Reports& reports = known->second;
  const std::size_t count = std::min({reports.waiting.size(), reports_of_node_per_turn_max, room});
  room -= count;
  reported.ranks.reserve(count);
  for (std::size_t at = 0; at < count; ++at) {
    cluster::RankReport& report = reports.waiting.front();
    reports.newest.erase({report.job, report.attempt, report.rank, report.status.state});
    reports.bytes -= report_bytes + report.status.detail.size();
    reports_bytes_ -= report_bytes + report.status.detail.size();
    reported.ranks.push_back(std::move(report));
    reports.waiting.pop_front();
  }
  if (reports.waiting.empty()) {
    reports_.erase(known);
  } else {
    items_.push_back({cluster::Reported(reported.node, std::vector<cluster::RankReport>()), {}, {}});
  }
}

std::vector<Item> Inbox::take() {
  std::vector<Item> taken;
  std::size_t room = reports_per_turn_max;
  std::size_t submit_bytes = 0;
  std::size_t effort = 0;
  // What is put back for the next turn comes behind these.
  std::size_t left = std::min(items_.size(), items_per_turn_max);
  for (; left > 0 && room > 0 && submit_bytes < submit_bytes_per_turn_max && effort < effort_per_turn_max;
       --left) {
    Item item = std::move(items_.front());
    items_.pop_front();
    if (auto* reported = std::get_if<cluster::Reported>(&item.event)) take_reports(*reported, room);
    if (const auto* hello = std::get_if<cluster::Hello>(&item.event)) {
      hellos_bytes_ -= bytes_of(*hello);
      hellos_.erase(hello->node);
    }
    if (const auto* submit = submit_of(item)) {
      const std::size_t bytes = bytes_of(*submit);
      submit_bytes_.give_back(submit->specs.front().user, bytes);
      submit_bytes += bytes;
    }
    effort += effort_of(item);
    if (item.reply) --asked_;
    taken.push_back(std::move(item));
  }
  return taken;
}

}  // namespace tutti::driver
