#include "node/agent/ports.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <utility>

namespace tutti::agent {
namespace {

constexpr std::size_t tries_max = 64;

// A name in the abstract space of Unix sockets: it is as wide as the space of ports (the network namespace),
// needs no file, and goes with the process.
Result<files::FileDescriptor> claim(std::int32_t port) {
  files::FileDescriptor socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return failed_errno("cannot make a socket", errno);
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  const std::string text = "tutti-port-" + std::to_string(port);
  std::memcpy(name.sun_path + 1, text.data(), text.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&name), length) != 0)
    return failed_errno("another gang has it", errno);
  return socket;
}

// Of all addresses, and of both protocols where there are two: a rank may bind to any of them. 0: any port.
Result<files::FileDescriptor> bind_port(std::int32_t port) {
  const auto number = htons(static_cast<std::uint16_t>(port));
  files::FileDescriptor both(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int no = 0;
  if (both.valid() && ::setsockopt(both.get(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no) == 0) {
    sockaddr_in6 any{};
    any.sin6_family = AF_INET6;
    any.sin6_port = number;
    if (::bind(both.get(), reinterpret_cast<const sockaddr*>(&any), sizeof any) == 0) return both;
    if (errno == EADDRINUSE) return failed_errno("somebody uses it", errno);
  }
  files::FileDescriptor one(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!one.valid()) return failed_errno("cannot make a socket", errno);
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_port = number;
  if (::bind(one.get(), reinterpret_cast<const sockaddr*>(&any), sizeof any) != 0)
    return failed_errno("somebody uses it", errno);
  return one;
}

Result<std::int32_t> port_of(const files::FileDescriptor& bound) {
  sockaddr_storage local{};
  socklen_t length = sizeof local;
  if (::getsockname(bound.get(), reinterpret_cast<sockaddr*>(&local), &length) != 0)
    return failed_errno("cannot ask for a socket's port", errno);
  const std::uint16_t port = local.ss_family == AF_INET6
                                 ? reinterpret_cast<const sockaddr_in6&>(local).sin6_port
                                 : reinterpret_cast<const sockaddr_in&>(local).sin_port;
  return static_cast<std::int32_t>(ntohs(port));
}

}  // namespace

Ports::Ports(PortRange range) : range_(range), prng_(std::random_device()()) { fill(); }

Result<Ports::Held> Ports::hold(std::int32_t port) {
  auto claimed = claim(port);
  if (!claimed) return std::move(claimed).error();
  auto bound = bind_port(port);
  if (!bound) return std::move(bound).error();
  return Held{std::move(*bound), std::move(*claimed)};
}

// The system knows nothing of claims: it gives out again what a gang was given and has not bound to yet. What
// is another gang's stays bound until one is found that is not, so that the next is a different one. But
// anybody can bind to names: where all of them are taken a port will do that nobody uses and that no gang of
// this agent was given.
Result<Ports::Found> Ports::hold_any_of_the_system() const {
  std::vector<Found> others;
  Error hindrance = failed("all are taken");
  while (others.size() < tries_max) {
    auto bound = bind_port(0);
    const auto port = bound ? port_of(*bound) : Result<std::int32_t>(bound.error());
    if (!port) {
      hindrance = port.error();
      break;
    }
    auto claimed = claim(*port);
    if (claimed) return Found(*port, Held{std::move(*bound), std::move(*claimed)});
    hindrance = claimed.error();
    others.emplace_back(*port, Held{std::move(*bound), {}});
  }
  for (Found& other : others) {
    if (!is_taken(other.first)) return std::move(other);
  }
  return hindrance;
}

bool Ports::is_taken(std::int32_t port) const {
  return std::any_of(taken_.begin(), taken_.end(),
                     [port](const auto& gang) { return gang.second.port == port; });
}

Result<Ports::Found> Ports::find() {
  for (std::size_t tries = 0; tries < tries_max; ++tries) {
    const auto port =
        range_.first + static_cast<std::int32_t>(prng_.below(static_cast<std::uint64_t>(range_.count)));
    if (kept_.contains(port)) continue;
    auto held = hold(port);
    if (!held) continue;
    is_crowded_ = false;
    return Found(port, std::move(*held));
  }
  is_crowded_ = true;
  return hold_any_of_the_system();
}

void Ports::fill() {
  while (kept_.size() < gang_ports_kept) {
    auto found = find();
    if (!found) return;
    kept_.insert(std::move(*found));
  }
}

std::vector<std::int32_t> Ports::free() const {
  std::vector<std::int32_t> ports;
  for (const auto& [port, held] : kept_) ports.push_back(port);
  return ports;
}

Result<Ports::Held> Ports::hold_kept(std::int32_t port) {
  auto kept = kept_.extract(port);
  // One that the controller has guessed, or that an earlier agent kept: it is looked at now.
  return kept.empty() ? hold(port) : Result<Held>(std::move(kept.mapped()));
}

// Whoever has taken the whole range also takes what is let go there, before the gang can.
Result<std::int32_t> Ports::take(cluster::JobId job, std::int32_t attempt, std::int32_t port,
                                 bool may_choose) {
  auto other = may_choose ? find() : Result<Found>(failed("it has to be this one"));
  const bool is_lost = other && is_crowded_;
  auto held = is_lost ? Result<Held>(failed("others take all that is free there")) : hold_kept(port);
  if (!held && other) {
    port = other->first;
    held = std::move(other->second);
  }
  if (!held) return failed("port " + std::to_string(port) + " is not free: " + held.error().text());
  taken_[{job, attempt}] = {port, std::move(held->claim)};
  held->port.reset();
  fill();
  return port;
}

}  // namespace tutti::agent
