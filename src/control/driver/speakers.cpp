#include "control/driver/speakers.hpp"

#include <algorithm>

namespace tutti::driver {

std::string host_of(const std::string& machine) { return machine.substr(0, machine.find(' ')); }

std::string Speakers::refusal(const std::string& node, const Who& who, Instant now) const {
  const auto found = speakers_.find(node);
  if (found == speakers_.end() || !found->second.who) return "";
  const Speaker& known = found->second;
  const Duration silent = now - known.heard_at;
  const bool open = known.open && silent <= silence_max;
  const std::string other =
      "another agent" + (known.who->machine.empty() ? "" : " on host " + host_of(known.who->machine));
  if (known.who->identity != who.identity) {
    if (!open && silent > return_time_max) return "";
    return "the name " + node + " is that of " + other +
           ", which has another folder; give each agent a --name of its own, or stop that one";
  }
  if (!open || known.who->machine == who.machine) return "";
  return "the folder of node " + node + " is in use by " + other +
         " as well: one is a copy of the other; give the copy a --data folder and a --name of its own";
}

Speakers::Greeting Speakers::greet(const std::string& node, Connection connection, const Who& who,
                                   Instant now) {
  if (!refusal(node, who, now).empty()) return {};
  forget_closed(now);
  const auto [entry, is_new] = speakers_.try_emplace(node);
  Speaker& known = entry->second;
  if (is_new) known.newest = forgotten_;
  if (connection < known.newest) return {};
  Greeting greeting{true, 0};
  if (known.open && known.newest != connection) greeting.replaced = known.newest;
  known = {connection, true, who, now};
  return greeting;
}

void Speakers::forget_closed(Instant now) {
  if (speakers_.size() < forget_at_) return;
  std::erase_if(speakers_, [&](const auto& entry) {
    const Speaker& known = entry.second;
    if (known.open || now - known.heard_at <= return_time_max) return false;
    forgotten_ = std::max(forgotten_, known.newest);
    return true;
  });
  // What could not be forgotten is not looked at again before there is twice as much.
  forget_at_ = std::max(speakers_kept, 2 * speakers_.size());
}

void Speakers::hear(const std::string& node, Connection connection, Instant now) {
  if (speaks(node, connection)) speakers_[node].heard_at = now;
}

void Speakers::expect(const std::string& node, const Who& who, Instant now) {
  speakers_[node] = {0, false, who, now};
}

bool Speakers::speaks(const std::string& node, Connection connection) const { return of(node) == connection; }

std::optional<Connection> Speakers::of(const std::string& node) const {
  const auto known = speakers_.find(node);
  if (known == speakers_.end() || !known->second.open) return std::nullopt;
  return known->second.newest;
}

bool Speakers::drop(const std::string& node, Connection connection) {
  if (!speaks(node, connection)) return false;
  speakers_[node].open = false;
  return true;
}

std::map<std::string, Connection> Speakers::all() const {
  std::map<std::string, Connection> speakers;
  for (const auto& [node, speaker] : speakers_) {
    if (speaker.open) speakers.emplace_hint(speakers.end(), node, speaker.newest);
  }
  return speakers;
}

}  // namespace tutti::driver
