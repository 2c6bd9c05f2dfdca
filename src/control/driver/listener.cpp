#include "control/driver/listener.hpp"

#include <utility>

namespace tutti::driver {
namespace {

Listener::Heard refusal(std::string why) {
  Listener::Heard heard;
  heard.refused = std::move(why);
  return heard;
}

}  // namespace

void Listener::open(Connection connection, std::string remote) {
  connections_[connection] = {std::move(remote), ""};
}

Listener::Heard Listener::greet(Connection connection, Known& known, cluster::Hello hello) {
  if (!known.node.empty() && hello.node != known.node)
    return refusal("it was " + known.node + " and now says " + hello.node);
  known.node = hello.node;
  if (hello.address.empty()) hello.address = known.remote;
  const auto greeting = speakers_.greet(known.node, connection);
  if (!greeting.accepted) return refusal("a newer connection has spoken for " + known.node);
  Heard heard;
  heard.replaced = greeting.replaced;
  heard.event = std::move(hello);
  return heard;
}

Listener::Heard Listener::receive(Connection connection, std::string_view frame) {
  const auto found = connections_.find(connection);
  if (found == connections_.end()) return {};
  Known& known = found->second;
  auto message = wire::decode_agent_message(frame);
  if (!message) return refusal(message.error().text());
  if (auto* hello = std::get_if<cluster::Hello>(&*message))
    return greet(connection, known, std::move(*hello));
  if (known.node.empty()) return refusal("no Hello");
  if (!speakers_.speaks(known.node, connection)) return {};
  Heard heard;
  if (const auto* beat = std::get_if<wire::Heartbeat>(&*message)) {
    heard.event = cluster::Heard{known.node};
    heard.echo = beat->echo;
  } else if (auto* report = std::get_if<cluster::RankReport>(&*message)) {
    heard.event = cluster::Reported{known.node, std::move(*report)};
  } else {
    heard.log = std::move(*message);
  }
  return heard;
}

std::optional<std::string> Listener::close(Connection connection) {
  const auto found = connections_.find(connection);
  if (found == connections_.end()) return std::nullopt;
  const std::string node = std::move(found->second.node);
  connections_.erase(found);
  if (!speakers_.drop(node, connection)) return std::nullopt;
  return node;
}

const std::string& Listener::node_of(Connection connection) const {
  static const std::string none;
  const auto found = connections_.find(connection);
  return found == connections_.end() ? none : found->second.node;
}

}  // namespace tutti::driver
