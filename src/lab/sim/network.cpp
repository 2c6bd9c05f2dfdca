#include "lab/sim/network.hpp"

#include <algorithm>

namespace tutti::sim {
namespace {

constexpr Duration patience_min = 1s;
constexpr Duration patience_max = 10s;
// After a break has healed, the retransmission timers of connections run out at times of their own.
constexpr Duration retransmission_max = 4s;

}  // namespace

Duration Network::some_delay() { return Duration(prng_.between(50'000, delay_max_.count())); }

Network::Id Network::open(std::size_t node) {
  const Id id = next_id_++;
  connections_[id].node = node;
  return id;
}

void Network::send(Id id, Side from, const std::string& frame) {
  const auto found = connections_.find(id);
  if (found == connections_.end() || !found->second.open[at(from)]) return;
  put(found->second, id, other(from), frame, false);
  if (prng_.chance(doubling_)) put(found->second, id, other(from), frame, false);
}

void Network::put(Connection& connection, Id id, Side to, std::string bytes, bool end) {
  Pipe& pipe = connection.to[at(to)];
  if (pipe.broken) return;
  Duration due = agenda_.now() + some_delay();
  if (!pipe.frames.empty()) due = std::max(due, pipe.frames.back().due);
  pipe.frames.push_back({std::move(bytes), due, end});
  if (!blocked_[connection.node]) schedule_pump(connection, id, to, Duration::zero());
}

void Network::schedule_pump(Connection& connection, Id id, Side to, Duration delay) {
  Pipe& pipe = connection.to[at(to)];
  if (pipe.pumping || pipe.frames.empty()) return;
  pipe.pumping = true;
  const Duration until_due = std::max(pipe.frames.front().due - agenda_.now(), Duration::zero());
  agenda_.after(std::max(until_due, delay), [this, id, to] { pump(id, to); });
}

void Network::pump(Id id, Side to) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  Connection& connection = found->second;
  Pipe& pipe = connection.to[at(to)];
  pipe.pumping = false;
  if (blocked_[connection.node] || pipe.frames.empty()) return;
  if (pipe.frames.front().due > agenda_.now()) return schedule_pump(connection, id, to, Duration::zero());
  Pipe::Frame frame = std::move(pipe.frames.front());
  pipe.frames.pop_front();
  schedule_pump(connection, id, to, Duration::zero());
  if (!connection.open[at(to)]) return forget_if_over(id);
  if (frame.end) return lose_side(id, to);
  calls_.message(id, connection.node, to, frame.bytes);
}

// The side learns that the connection is over.
void Network::lose_side(Id id, Side side) {
  const auto found = connections_.find(id);
  if (found == connections_.end() || !found->second.open[at(side)]) return;
  const std::size_t node = found->second.node;
  close(id, side);
  calls_.closed(id, node, side);
}

void Network::linger(Pipe& pipe) {
  if (!prng_.chance(lingering_)) return;
  const Duration longer(prng_.between(0, retransmission_max.count()));
  for (Pipe::Frame& frame : pipe.frames) frame.due += longer;
}

void Network::close(Id id, Side side) {
  const auto found = connections_.find(id);
  if (found == connections_.end() || !found->second.open[at(side)]) return;
  found->second.open[at(side)] = false;
  linger(found->second.to[at(other(side))]);
  put(found->second, id, other(side), "", true);
  forget_if_over(id);
}

void Network::vanish(Id id, Side side) {
  const auto found = connections_.find(id);
  if (found == connections_.end() || !found->second.open[at(side)]) return;
  found->second.open[at(side)] = false;
  agenda_.after(Duration(prng_.between(patience_min.count(), patience_max.count())),
                [this, id, side] { lose_side(id, other(side)); });
}

void Network::cut(Id id) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  for (const Side side : {Side::agent, Side::controller}) {
    Pipe& pipe = found->second.to[at(side)];
    pipe.broken = true;
    pipe.frames.resize(prng_.below(pipe.frames.size() + 1));
    linger(pipe);
    const Duration notices =
        prng_.chance(0.5) ? some_delay() : Duration(prng_.between(0, patience_max.count()));
    agenda_.after(notices, [this, id, side] { lose_side(id, side); });
  }
}

void Network::forget_if_over(Id id) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  const Connection& connection = found->second;
  // What nobody will read need not be delivered.
  const bool over = !connection.open[0] && !connection.open[1];
  if (over) connections_.erase(found);
}

void Network::block(std::size_t node) {
  blocked_[node] = true;
  for (auto& [id, connection] : connections_) {
    if (connection.node != node) continue;
    for (const Side side : {Side::agent, Side::controller}) {
      agenda_.after(Duration(prng_.between(patience_min.count(), patience_max.count())),
                    [this, id = id, node, side] {
                      if (blocked_[node]) lose_side(id, side);
                    });
    }
  }
}

void Network::unblock(std::size_t node) {
  blocked_[node] = false;
  for (auto& [id, connection] : connections_) {
    if (connection.node != node) continue;
    for (const Side side : {Side::agent, Side::controller})
      schedule_pump(connection, id, side, Duration(prng_.between(0, retransmission_max.count())));
  }
}

}  // namespace tutti::sim
