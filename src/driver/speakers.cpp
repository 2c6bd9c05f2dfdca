#include "driver/speakers.hpp"

#include <utility>

namespace tutti::driver {

Speakers::Greeting Speakers::greet(const std::string& node, Connection connection) {
  Connection& known = speakers_[node];
  if (known == connection) return {true, 0};
  return {true, std::exchange(known, connection)};
}

bool Speakers::speaks(const std::string& node, Connection connection) const {
  const auto known = speakers_.find(node);
  return known != speakers_.end() && known->second == connection;
}

std::optional<Connection> Speakers::of(const std::string& node) const {
  const auto known = speakers_.find(node);
  if (known == speakers_.end()) return std::nullopt;
  return known->second;
}

bool Speakers::drop(const std::string& node, Connection connection) {
  if (!speaks(node, connection)) return false;
  speakers_.erase(node);
  return true;
}

}  // namespace tutti::driver
