#include "comm/links.hpp"

#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <list>

#include "base/clock/clock.hpp"

namespace tutti::comm {
namespace {

constexpr std::size_t visitors_max = 4096;
constexpr std::size_t arrivals_max = 65536;
// An address that does not answer in this time is not the road to take.
constexpr auto knock_time = std::chrono::seconds(1);
constexpr auto knock_pause = std::chrono::milliseconds(20);
// A port that is free on loopback is seldom somebody else's on another address. An address that has just
// come, or is about to go, is no road.
constexpr int ports_tried_max = 4;
constexpr int pings = 5;
constexpr int messages_at_once = 16;
constexpr std::uint32_t burst_bytes = std::uint32_t{256} << 10;
constexpr std::uint32_t burst_total_max = std::uint32_t{16} << 20;
constexpr auto burst_time = std::chrono::milliseconds(4);
constexpr char welcome = 'w';

enum class Purpose : std::uint32_t { link = 1, measure = 2 };

}  // namespace

struct Links::Hello {
  Cookie cookie{};
  std::uint64_t group = 0;
  Purpose purpose = Purpose::link;
  std::int32_t from = 0;
  std::int32_t to = 0;
  std::uint32_t number = 0;
};

struct Links::Visitor {
  Socket socket;
  Clock::time_point since;
  Hello hello{};
  std::size_t read = 0;
  bool measures = false;
  // Of the measurement's frame: a length, and so many bytes.
  std::uint32_t length = 0;
  std::size_t length_read = 0;
  std::size_t left = 0;
};

Result<bool> Links::listen(std::vector<std::string> addresses) {
  addresses.insert(addresses.begin(), "127.0.0.1");
  listeners_.clear();
  port_ = 0;
  Error why = failed("this host has no address");
  for (const std::string& address : addresses) {
    const auto endpoint = Endpoint::of(address, port_);
    auto listener = endpoint ? listen_on(*endpoint) : Result<Socket>(endpoint.error());
    auto port = listener ? port_of(*listener) : Result<std::uint16_t>(listener.error());
    if (!port) {
      why = port.error();
      continue;
    }
    port_ = *port;
    listeners_.push_back(std::move(*listener));
  }
  if (listeners_.empty()) return why;
  return listeners_.size() == addresses.size();
}

Result<std::unique_ptr<Links>> Links::start(const std::vector<std::string>& addresses) {
  std::unique_ptr<Links> links(new Links);
  for (int tries = 1;; ++tries) {
    const auto listening = links->listen(addresses);
    if (!listening) return Error(listening.error()).within("the port for data");
    if (*listening || tries == ports_tried_max) break;
  }
  links->wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (links->wake_ < 0) return failed_errno("eventfd", errno);
  links->thread_ = std::thread([self = links.get()] { self->run(); });
  return links;
}

Links::~Links() {
  if (thread_.joinable()) {
    stopping_ = true;
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = write(wake_, &one, sizeof one);
    thread_.join();
  }
  if (wake_ >= 0) close(wake_);
}

void Links::open(int rank, std::string host, const Cookie& cookie) {
  const std::lock_guard lock(mutex_);
  rank_ = rank;
  host_ = std::move(host);
  cookie_ = cookie;
  open_ = true;
  // Who came too early still waits at the door.
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = write(wake_, &one, sizeof one);
}

void Links::run() {
  std::list<Visitor> visitors;
  for (;;) {
    std::vector<pollfd> entries{{wake_, POLLIN, 0}};
    for (const Socket& one : listeners_) entries.push_back({one.get(), POLLIN, 0});
    for (const Visitor& one : visitors) entries.push_back({one.socket.get(), POLLIN, 0});
    if (poll(entries.data(), entries.size(), visitors.empty() ? -1 : 1000) < 0 && errno != EINTR) return;
    if (stopping_) return;
    const bool opened = entries[0].revents != 0;
    if (opened) {
      std::uint64_t count = 0;
      [[maybe_unused]] const auto got = read(wake_, &count, sizeof count);
    }
    std::size_t at = 1 + listeners_.size();
    const auto now = Clock::now();
    for (auto one = visitors.begin(); one != visitors.end();) {
      const bool ready = entries[at++].revents != 0 || opened;
      const bool late = now > one->since + hello_time;
      one = (late || (ready && !serve(*one))) ? visitors.erase(one) : std::next(one);
    }
    for (std::size_t one = 0; one < listeners_.size(); ++one) {
      if (entries[1 + one].revents == 0) continue;
      for (Socket socket = accept_from(listeners_[one]); socket.valid();
           socket = accept_from(listeners_[one])) {
        if (visitors.size() < visitors_max) visitors.push_back({.socket = std::move(socket), .since = now});
        socket = Socket();
      }
    }
  }
}

// False when the visitor is done with or not wanted.
bool Links::serve(Visitor& visitor) {
  if (!visitor.measures && visitor.read == sizeof(Hello)) return admit(visitor);
  while (!visitor.measures) {
    auto* const place = reinterpret_cast<char*>(&visitor.hello) + visitor.read;
    const ssize_t got = recv(visitor.socket.get(), place, sizeof(Hello) - visitor.read, 0);
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    if (got == 0) return false;
    visitor.read += static_cast<std::size_t>(got);
    if (visitor.read == sizeof(Hello)) return admit(visitor);
  }
  std::array<char, 65536> sink;
  for (;;) {
    const bool in_length = visitor.length_read < sizeof visitor.length;
    char* const place =
        in_length ? reinterpret_cast<char*>(&visitor.length) + visitor.length_read : sink.data();
    const std::size_t want =
        in_length ? sizeof visitor.length - visitor.length_read : std::min(sink.size(), visitor.left);
    const ssize_t got = recv(visitor.socket.get(), place, want, 0);
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    if (got == 0) return false;
    if (in_length) {
      visitor.length_read += static_cast<std::size_t>(got);
      if (visitor.length_read < sizeof visitor.length) continue;
      if (visitor.length > burst_total_max) return false;
      visitor.left = visitor.length;
    } else {
      visitor.left -= static_cast<std::size_t>(got);
    }
    if (visitor.left > 0) continue;
    visitor.length_read = 0;
    if (send(visitor.socket.get(), &welcome, 1, MSG_NOSIGNAL) != 1) return false;
  }
}

bool Links::admit(Visitor& visitor) {
  const std::lock_guard lock(mutex_);
  const Hello& hello = visitor.hello;
  if (!open_) return true;
  if (hello.cookie != cookie_ || hello.to != rank_) return false;
  if (send(visitor.socket.get(), &welcome, 1, MSG_NOSIGNAL) != 1) return false;
  if (hello.purpose == Purpose::measure) {
    visitor.measures = true;
    return true;
  }
  if (hello.purpose != Purpose::link || arrivals_.size() >= arrivals_max) return false;
  arrivals_[{hello.group, hello.from, hello.number}] = std::move(visitor.socket);
  arrived_.notify_all();
  return false;
}

Result<Socket> Links::knock(const Address& peer, const Endpoint& endpoint, Hello hello,
                            Clock::time_point deadline) const {
  {
    const std::lock_guard lock(mutex_);
    hello.cookie = cookie_;
    hello.from = rank_;
  }
  hello.to = peer.rank;
  auto socket = dial(endpoint, deadline);
  if (!socket) return socket;
  const std::string_view bytes(reinterpret_cast<const char*>(&hello), sizeof hello);
  if (auto sent = send_all(*socket, bytes, deadline); !sent) return std::move(sent).error();
  char answer = 0;
  if (auto got = receive_all(*socket, &answer, 1, deadline); !got) {
    return std::move(got).error().within(endpoint.address());
  }
  return socket;
}

Result<Route> Links::measure(const Address& peer, const Endpoint& endpoint,
                             Clock::time_point deadline) const {
  auto socket = knock(peer, endpoint, {.purpose = Purpose::measure}, deadline);
  if (!socket) return std::move(socket).error();
  char answer = 0;
  const auto round_trip = [&](std::string_view bytes, int messages) -> Result<double> {
    const auto begin = Clock::now();
    for (int i = 0; i < messages; ++i) {
      if (auto sent = send_all(*socket, bytes, deadline); !sent) return std::move(sent).error();
    }
    for (int i = 0; i < messages; ++i) {
      if (auto got = receive_all(*socket, &answer, 1, deadline); !got) return std::move(got).error();
    }
    return seconds_since(begin);
  };
  const auto frame = [](std::uint32_t length) {
    std::string bytes(sizeof length + length, '\0');
    std::memcpy(bytes.data(), &length, sizeof length);
    return bytes;
  };
  Route route{.endpoint = endpoint, .cost = {}};
  double best = 1e9;
  double best_many = 1e9;
  const std::string ping = frame(1);
  for (int i = 0; i < pings; ++i) {
    auto one = round_trip(ping, 1);
    if (!one) return std::move(one).error();
    auto many = round_trip(ping, messages_at_once);
    if (!many) return std::move(many).error();
    best = std::min(best, *one);
    best_many = std::min(best_many, *many);
  }
  route.cost.latency_s = best / 2;
  route.cost.message_s = std::max(best_many - best, 0.0) / (messages_at_once - 1);
  // Bursts that double, until one takes long enough to tell.
  for (std::uint32_t bytes = burst_bytes; bytes <= burst_total_max; bytes *= 2) {
    auto burst = round_trip(frame(bytes), 1);
    if (!burst) return std::move(burst).error();
    route.cost.bytes_per_s = static_cast<double>(bytes) / std::max(*burst - best, 1e-9);
    if (*burst > std::chrono::duration<double>(burst_time).count()) break;
  }
  return route;
}

Result<Route> Links::route(const Address& peer, Clock::time_point deadline, const Fault& fault) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = routes_.find(peer.host);
    if (found != routes_.end()) {
      Route known = found->second;
      auto endpoint = Endpoint::of(known.endpoint.address(), peer.port);
      if (!endpoint) return std::move(endpoint).error();
      known.endpoint = *endpoint;
      return known;
    }
  }
  std::vector<std::string> addresses = peer.addresses;
  if (peer.host == host_) addresses = {"127.0.0.1"};
  Route best{.endpoint = {}, .cost = {.bytes_per_s = 0}};
  std::string why = "it has no address";
  // A peer that is busy may not answer at the first knock.
  while (best.cost.bytes_per_s <= 0) {
    for (const std::string& address : addresses) {
      auto endpoint = Endpoint::of(address, peer.port);
      if (!endpoint) continue;
      auto measured = measure(peer, *endpoint, std::min(deadline, Clock::now() + knock_time));
      if (!measured) {
        why = measured.error().text();
      } else if (measured->cost.bytes_per_s > best.cost.bytes_per_s) {
        best = *measured;
      }
    }
    if (best.cost.bytes_per_s > 0) break;
    if (fault.raised()) return fault.error();
    if (addresses.empty() || Clock::now() >= deadline) {
      return failed("rank " + std::to_string(peer.rank) + " cannot be reached: " + why);
    }
    std::this_thread::sleep_for(knock_pause);
  }
  const std::lock_guard lock(mutex_);
  routes_.emplace(peer.host, best);
  return best;
}

Result<Link> Links::connect(std::uint64_t group, const Address& peer, std::size_t sockets,
                            Clock::time_point deadline, const Fault& fault) {
  Link link{.rank = peer.rank, .sockets = {}};
  if (rank_ < peer.rank) {
    auto road = route(peer, deadline, fault);
    if (!road) return std::move(road).error();
    for (std::uint32_t i = 0; i < sockets; ++i) {
      auto socket =
          knock(peer, road->endpoint, {.group = group, .purpose = Purpose::link, .number = i}, deadline);
      if (!socket) return std::move(socket).error();
      link.sockets.push_back(std::move(*socket));
    }
    return link;
  }
  std::unique_lock lock(mutex_);
  for (std::uint32_t i = 0; i < sockets;) {
    const auto found = arrivals_.find({group, peer.rank, i});
    if (found != arrivals_.end()) {
      link.sockets.push_back(std::move(found->second));
      arrivals_.erase(found);
      ++i;
      continue;
    }
    if (fault.raised()) return fault.error();
    if (Clock::now() >= deadline) return failed("rank " + std::to_string(peer.rank) + " has not dialled");
    arrived_.wait_until(lock, std::min(deadline, Clock::now() + std::chrono::milliseconds(50)));
  }
  return link;
}

}  // namespace tutti::comm
