#include "comm/pump.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "base/check.hpp"

namespace tutti::comm {
namespace {

// Shorter transfers use the first socket alone.
constexpr std::size_t striped_bytes_min = std::size_t{1} << 20;
// One turn of a socket, so that the others get theirs.
constexpr std::size_t turn_bytes_max = std::size_t{1} << 20;
// Looks at idle sockets before the thread sleeps: a peer in step answers within microseconds.
constexpr int eager_turns = 50;
constexpr auto sleep_max = std::chrono::milliseconds(50);

}  // namespace

Stripes::Stripes(std::size_t bytes, std::size_t sockets)
    : bytes_(bytes), cursors_(bytes >= striped_bytes_min ? sockets : 1, 0) {}

Stripes::Run Stripes::next(std::size_t socket) const {
  const std::size_t count = cursors_.size();
  const std::size_t cursor = cursors_[socket];
  if (count == 1) return {cursor, bytes_ - cursor};
  const std::size_t stripe = cursor / stripe_bytes * count + socket;
  const std::size_t at = stripe * stripe_bytes + cursor % stripe_bytes;
  if (at >= bytes_) return {bytes_, 0};
  return {at, std::min((stripe + 1) * stripe_bytes, bytes_) - at};
}

void Stripes::advance(std::size_t socket, std::size_t bytes) {
  cursors_[socket] += bytes;
  prefix_ = bytes_;
  for (std::size_t one = 0; one < cursors_.size(); ++one) {
    const Run run = next(one);
    if (run.bytes > 0) prefix_ = std::min(prefix_, run.at);
  }
}

void Pump::add_link(int index, Link* link) {
  Lane& lane = lanes_[index];
  lane.index = index;
  lane.link = link;
}

Sending& Pump::send(int index, const std::byte* data, std::size_t bytes, std::size_t ready) {
  Lane& lane = lanes_.at(index);
  return lane.sends.emplace_back(Sending{data, Stripes(bytes, lane.link->sockets.size()), ready});
}

Receiving& Pump::receive(int index, std::byte* data, std::size_t bytes, std::size_t window) {
  TUTTI_CHECK(window % Stripes::stripe_bytes == 0);
  Lane& lane = lanes_.at(index);
  return lane.receives.emplace_back(
      Receiving{data, Stripes(bytes, lane.link->sockets.size()), window >= bytes ? 0 : window, 0});
}

bool Pump::done() const {
  return std::all_of(lanes_.begin(), lanes_.end(), [](const auto& one) {
    return one.second.sent == one.second.sends.size() && one.second.received == one.second.receives.size();
  });
}

// Whom the rank waits for: a link whose data has not come, else one that does not take any.
int Pump::blocking() const {
  for (const auto& [index, lane] : lanes_) {
    if (lane.received < lane.receives.size()) return index;
  }
  for (const auto& [index, lane] : lanes_) {
    if (lane.sent < lane.sends.size()) return index;
  }
  return -1;
}

Pump::Moved Pump::push(Lane& lane) {
  Moved moved = Moved::nothing;
  while (lane.sent < lane.sends.size()) {
    Sending& transfer = lane.sends[lane.sent];
    if (transfer.stripes.done()) {
      ++lane.sent;
      continue;
    }
    bool blocked = true;
    for (std::size_t s = 0; s < transfer.stripes.sockets(); ++s) {
      const Stripes::Run run = transfer.stripes.next(s);
      if (run.bytes == 0 || run.at >= transfer.ready) continue;
      const std::size_t bytes = std::min({run.bytes, transfer.ready - run.at, turn_bytes_max});
      const ssize_t sent =
          ::send(lane.link->sockets[s].get(), transfer.data + run.at, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent > 0) {
        transfer.stripes.advance(s, static_cast<std::size_t>(sent));
        moved = Moved::something;
        blocked = false;
      } else if (sent < 0 && errno != EAGAIN && errno != EINTR) {
        return Moved::closed;
      }
    }
    if (blocked || !transfer.stripes.done()) break;
  }
  return moved;
}

Pump::Moved Pump::pull(Lane& lane) {
  Moved moved = Moved::nothing;
  while (lane.received < lane.receives.size()) {
    Receiving& transfer = lane.receives[lane.received];
    if (transfer.stripes.done()) {
      ++lane.received;
      continue;
    }
    const std::size_t limit = transfer.window == 0 ? SIZE_MAX : transfer.consumed + transfer.window;
    for (std::size_t s = 0; s < transfer.stripes.sockets(); ++s) {
      Stripes::Run run = transfer.stripes.next(s);
      if (run.bytes == 0 || run.at >= limit) continue;
      std::size_t bytes = std::min({run.bytes, limit - run.at, turn_bytes_max});
      std::byte* place = transfer.data + run.at;
      if (transfer.window != 0) {
        const std::size_t in_ring = run.at % transfer.window;
        bytes = std::min(bytes, transfer.window - in_ring);
        place = transfer.data + in_ring;
      }
      const ssize_t got = recv(lane.link->sockets[s].get(), place, bytes, MSG_DONTWAIT);
      if (got > 0) {
        transfer.stripes.advance(s, static_cast<std::size_t>(got));
        moved = Moved::something;
      } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
        return Moved::closed;
      }
    }
    if (!transfer.stripes.done()) break;
  }
  return moved;
}

Outcome Pump::sleep(const Limits& limits) {
  if (limits.fault->raised()) return Outcome::fault();
  const auto now = Clock::now();
  if (now >= limits.deadline) return Outcome::late(blocking());
  std::vector<pollfd> entries{{limits.fault->event(), POLLIN, 0}};
  for (auto& [index, lane] : lanes_) {
    for (std::size_t s = 0; s < lane.link->sockets.size(); ++s) {
      short events = 0;
      if (lane.received < lane.receives.size()) {
        const Receiving& transfer = lane.receives[lane.received];
        if (s < transfer.stripes.sockets()) {
          const Stripes::Run run = transfer.stripes.next(s);
          const bool room = transfer.window == 0 || run.at < transfer.consumed + transfer.window;
          if (run.bytes > 0 && room) events = POLLIN;
        }
      }
      if (lane.sent < lane.sends.size()) {
        const Sending& transfer = lane.sends[lane.sent];
        if (s < transfer.stripes.sockets()) {
          const Stripes::Run run = transfer.stripes.next(s);
          if (run.bytes > 0 && run.at < transfer.ready) events = static_cast<short>(events | POLLOUT);
        }
      }
      if (events != 0) entries.push_back({lane.link->sockets[s].get(), events, 0});
    }
  }
  const auto wake = std::min(limits.deadline, now + sleep_max);
  poll(entries.data(), entries.size(), milliseconds_until(wake));
  return {};
}

Outcome Pump::run(const Limits& limits, const Progress& progress) {
  int idle = 0;
  for (;;) {
    bool moved = false;
    for (auto& [index, lane] : lanes_) {
      const Moved out = push(lane);
      const Moved in = pull(lane);
      if (out == Moved::closed || in == Moved::closed) return Outcome::closed(index);
      moved = moved || out == Moved::something || in == Moved::something;
    }
    if (auto made = progress(); !made.ok()) return made;
    if (done()) return {};
    if (moved) {
      idle = 0;
    } else if (++idle >= eager_turns) {
      if (auto slept = sleep(limits); !slept.ok()) return slept;
    }
  }
}

}  // namespace tutti::comm
