#include "control/driver/speakers.hpp"

namespace tutti::driver {

Speakers::Greeting Speakers::greet(const std::string& node, Connection connection) {
  Speaker& known = speakers_[node];
  if (connection < known.newest) return {};
  Greeting greeting{true, 0};
  if (known.open && known.newest != connection) greeting.replaced = known.newest;
  known = {connection, true};
  return greeting;
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
