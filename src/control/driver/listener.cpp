#include "control/driver/listener.hpp"

#include <algorithm>
#include <utility>

namespace tutti::driver {
namespace {

Listener::Heard refusal(std::string why, std::string claimed = "") {
  Listener::Heard heard;
  heard.refused = std::move(why);
  heard.claimed = std::move(claimed);
  return heard;
}

}  // namespace

void Listener::open(Connection connection, std::string remote, std::string proven_node) {
  connections_[connection] = {std::move(remote), "", {}, {}, std::move(proven_node)};
}

void Listener::expect(std::string cluster, const std::map<std::string, std::string>& agents, Instant now) {
  cluster_ = std::move(cluster);
  for (const auto& [node, identity] : agents) speakers_.expect(node, {identity, ""}, now);
}

Listener::Heard Listener::turn_away(const Known& known, const cluster::Hello& hello,
                                    const std::string& why) const {
  Heard heard = refusal("on host " + host_of(hello.machine) + ": " + why, hello.node);
  heard.answers.emplace_back(wire::Notice{why, true});
  heard.first = speakers_.of(hello.node).value_or(0);
  heard.to_the_first = {"another agent, at " + known.remote + " on " + hello.machine +
                            ", wanted to be node " + hello.node + " too and was refused",
                        false};
  return heard;
}

std::string Listener::illness(const Known& known, std::string told) const {
  if (!told.empty() || !demands_isolation_) return told;
  if (known.keeps_apart)
    return known.lacks.empty()
               ? ""
               : "it cannot do all that this cluster demands (--isolation user): " + known.lacks;
  return "its ranks do not run as the accounts of their users, which this cluster demands (--isolation "
         "user): its agent is not root's, or was started with --isolation none";
}

Listener::Heard Listener::greet(Connection connection, Known& known, cluster::Hello hello, Instant now) {
  if (!known.node.empty() && hello.node != known.node)
    return refusal("it was " + known.node + " and now says " + hello.node, hello.node);
  const bool is_protected = known.proven_node.empty() && is_protected_ && is_protected_(hello.node);
  if (is_protected || (!known.proven_node.empty() && hello.node != known.proven_node)) {
    Heard heard = refusal(is_protected ? "node " + hello.node + " has a certificate, and it shows none"
                                       : "it has the certificate of node " + known.proven_node +
                                             " and says that it is " + hello.node,
                          hello.node);
    heard.answers.emplace_back(wire::Notice{heard.refused, true});
    return heard;
  }
  const Who who{hello.identity, hello.machine};
  if (const std::string why = speakers_.refusal(hello.node, who, now); !why.empty())
    return turn_away(known, hello, why);
  known.node = hello.node;
  known.told_at = now;
  known.keeps_apart = hello.keeps_apart;
  known.lacks = hello.lacks;
  hello.illness = illness(known, std::move(hello.illness));
  Heard heard;
  heard.answers.emplace_back(wire::Welcome{cluster_});
  if (!hello.cluster.empty() && hello.cluster != cluster_) {
    heard.note = "node " + hello.node + " is of cluster " + hello.cluster + " and this is " + cluster_ +
                 ": it puts the ranks and logs of that one aside";
    return heard;
  }
  if (hello.address.empty()) hello.address = known.remote;
  for (cluster::RankReport& report : hello.ranks) report.heard_at = now;
  const auto greeting = speakers_.greet(known.node, connection, who, now);
  if (!greeting.accepted) return refusal("a newer connection has spoken for " + known.node);
  heard.replaced = greeting.replaced;
  heard.event = std::move(hello);
  return heard;
}

Duration Listener::lateness(Known& known, Duration sent, Instant now) {
  if (sent <= Duration::zero()) return {};
  const Duration apart = now.time_since_epoch() - sent;
  known.apart = std::min(known.apart.value_or(apart), apart);
  return apart - *known.apart;
}

Listener::Heard Listener::receive(Connection connection, std::string_view frame, Instant now) {
  const auto found = connections_.find(connection);
  if (found == connections_.end()) return {};
  Known& known = found->second;
  auto message = wire::decode_agent_message(frame);
  if (!message) return refusal(message.error().text());
  if (auto* hello = std::get_if<cluster::Hello>(&*message))
    return greet(connection, known, std::move(*hello), now);
  if (known.node.empty()) return refusal("no Hello");
  if (!speakers_.speaks(known.node, connection)) return {};
  speakers_.hear(known.node, connection, now);
  Heard heard;
  if (auto* beat = std::get_if<wire::Heartbeat>(&*message)) {
    static_cast<void>(lateness(known, beat->sent, now));
    heard.echo = beat->echo;
    heard.event = cluster::Heard{known.node, illness(known, std::move(beat->illness)), beat->kept};
  } else if (auto* free = std::get_if<wire::FreePorts>(&*message)) {
    heard.event = cluster::PortsHeld{known.node, std::move(free->ports)};
  } else if (auto* reports = std::get_if<wire::RankReports>(&*message)) {
    // What waited to be read, while this process was stopped or busy, is older than it says.
    const Duration late = lateness(known, reports->sent, now);
    for (cluster::RankReport& report : reports->ranks) {
      if (report.status.state == cluster::RankState::exited) report.ended_ago += late;
      if (report.ran != Duration::zero()) report.ran += late;
      report.heard_at = now;
    }
    heard.event = cluster::Reported(known.node, std::move(reports->ranks));
  } else {
    heard.log = std::move(*message);
    // Its heartbeats may wait behind much of this.
    if (now - known.told_at >= cluster::heartbeat_every)
      heard.event = cluster::Reported(known.node, std::vector<cluster::RankReport>());
  }
  if (heard.event) known.told_at = now;
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
