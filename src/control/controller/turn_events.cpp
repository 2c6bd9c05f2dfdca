#include "control/controller/turn_events.hpp"

#include <utility>

#include "control/cluster/authorize.hpp"

namespace tutti::controller {

std::string event_text(std::string_view name, std::string_view data) {
  return "event: " + std::string(name) + "\ndata: " + std::string(data) + "\n\n";
}

void TurnEvents::tell(const people::Caller& caller, net::Stream& stream) {
  if (people::has(caller, people::Role::viewer, people::everything)) return stream.write(all());
  if (!sorted_) sort();
  for (auto& [queue, changes] : queues_) {
    if (people::may_see_job(caller, queue)) {
      stream.write(text_of(changes.jobs, changes.text));
      continue;
    }
    const auto his = changes.of_users.find(caller.name);
    if (his != changes.of_users.end() && cluster::may_see(caller, queue, caller.name))
      stream.write(text_of(his->second.jobs, his->second.text));
  }
  if (nodes_) stream.write(nodes_);
}

const net::Text& TurnEvents::all() {
  if (all_) return all_;
  std::string events;
  for (const auto& change : delivery_.jobs) events += event_text("job", change.json);
  all_ = net::make_text(events + nodes_text());
  return all_;
}

void TurnEvents::sort() {
  sorted_ = true;
  for (const auto& change : delivery_.jobs) {
    OfQueue& there = queues_[change.queue];
    there.jobs.push_back(&change);
    there.of_users[change.user].jobs.push_back(&change);
  }
  if (!delivery_.nodes.empty()) nodes_ = net::make_text(nodes_text());
}

std::string TurnEvents::nodes_text() const {
  std::string events;
  for (const auto& json : delivery_.nodes) events += event_text("node", json);
  return events;
}

const net::Text& TurnEvents::text_of(const Jobs& jobs, net::Text& text) {
  if (text) return text;
  std::string events;
  for (const auto* change : jobs) events += event_text("job", change->json);
  text = net::make_text(std::move(events));
  return text;
}

}  // namespace tutti::controller
