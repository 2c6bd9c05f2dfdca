#include "comm/socket.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace tutti::comm {
namespace {

void prepare(int descriptor) {
  const int one = 1;
  setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

Result<> wait_ready(int descriptor, short events, Clock::time_point deadline) {
  pollfd entry{descriptor, events, 0};
  for (;;) {
    const int ready = poll(&entry, 1, milliseconds_until(deadline));
    if (ready > 0) return {};
    if (ready == 0) return failed("no answer in time");
    if (errno != EINTR) return failed_errno("poll", errno);
  }
}

bool is_private_v4(const unsigned char* bytes) {
  return bytes[0] == 10 || (bytes[0] == 172 && bytes[1] >= 16 && bytes[1] < 32) ||
         (bytes[0] == 192 && bytes[1] == 168) || (bytes[0] == 169 && bytes[1] == 254) ||
         (bytes[0] == 100 && bytes[1] >= 64 && bytes[1] < 128);
}

// Of a network that others do not route to (RFC 1918, 3927, 4193, 6598).
bool is_private(const std::string& address) {
  std::array<unsigned char, sizeof(in6_addr)> bytes{};
  if (inet_pton(AF_INET, address.c_str(), bytes.data()) == 1) return is_private_v4(bytes.data());
  return inet_pton(AF_INET6, address.c_str(), bytes.data()) == 1 && (bytes[0] & 0xfeU) == 0xfcU;
}

}  // namespace

Socket::~Socket() {
  if (descriptor_ >= 0) close(descriptor_);
}

int milliseconds_until(Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 1'000'000'000));
}

Result<std::vector<Endpoint>> Endpoint::resolve(const std::string& host, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int status = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (status != 0) return failed("the address of '" + host + "' is not known: " + gai_strerror(status));
  std::vector<Endpoint> endpoints;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    Endpoint endpoint;
    endpoint.size = one->ai_addrlen;
    std::memcpy(&endpoint.storage, one->ai_addr, one->ai_addrlen);
    endpoints.push_back(endpoint);
  }
  freeaddrinfo(found);
  if (endpoints.empty()) return failed("'" + host + "' has no address");
  return endpoints;
}

Result<Endpoint> Endpoint::of(const std::string& address, std::uint16_t port) {
  auto all = resolve(address, port);
  if (!all) return std::move(all).error();
  return all->front();
}

std::string Endpoint::address() const {
  std::array<char, NI_MAXHOST> text{};
  const auto* const raw = reinterpret_cast<const sockaddr*>(&storage);
  if (getnameinfo(raw, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0) return "?";
  return text.data();
}

std::uint16_t Endpoint::port() const {
  if (storage.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_port);
  return ntohs(reinterpret_cast<const sockaddr_in*>(&storage)->sin_port);
}

Result<Socket> listen_on(const Endpoint& endpoint) {
  Socket socket(::socket(endpoint.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return failed_errno("socket", errno);
  const int one = 1;
  setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  const auto* const raw = reinterpret_cast<const sockaddr*>(&endpoint.storage);
  if (bind(socket.get(), raw, endpoint.size) != 0 || listen(socket.get(), 4096) != 0) {
    return failed_errno(endpoint.address() + " port " + std::to_string(endpoint.port()), errno);
  }
  return socket;
}

Result<std::uint16_t> port_of(const Socket& listener) {
  Endpoint endpoint;
  endpoint.size = sizeof endpoint.storage;
  if (getsockname(listener.get(), reinterpret_cast<sockaddr*>(&endpoint.storage), &endpoint.size) != 0) {
    return failed_errno("getsockname", errno);
  }
  return endpoint.port();
}

Result<Socket> dial(const Endpoint& endpoint, Clock::time_point deadline) {
  Socket socket(::socket(endpoint.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return failed_errno("socket", errno);
  const auto* const raw = reinterpret_cast<const sockaddr*>(&endpoint.storage);
  if (connect(socket.get(), raw, endpoint.size) != 0) {
    if (errno != EINPROGRESS) return failed_errno(endpoint.address(), errno);
    if (auto ready = wait_ready(socket.get(), POLLOUT, deadline); !ready) {
      return std::move(ready).error().within(endpoint.address());
    }
    int error_number = 0;
    socklen_t size = sizeof error_number;
    getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error_number, &size);
    if (error_number != 0) return failed_errno(endpoint.address(), error_number);
  }
  prepare(socket.get());
  return socket;
}

Socket accept_from(const Socket& listener) {
  Socket socket(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket.valid()) prepare(socket.get());
  return socket;
}

Result<> send_all(const Socket& socket, std::string_view bytes, Clock::time_point deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN) {
      if (auto ready = wait_ready(socket.get(), POLLOUT, deadline); !ready) return ready;
    } else if (errno != EINTR) {
      return failed_errno("send", errno);
    }
  }
  return {};
}

Result<> receive_all(const Socket& socket, void* data, std::size_t bytes, Clock::time_point deadline) {
  auto* place = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t got = recv(socket.get(), place, bytes, 0);
    if (got > 0) {
      place += got;
      bytes -= static_cast<std::size_t>(got);
    } else if (got == 0) {
      return failed("the connection was closed");
    } else if (errno == EAGAIN) {
      if (auto ready = wait_ready(socket.get(), POLLIN, deadline); !ready) return ready;
    } else if (errno != EINTR) {
      return failed_errno("receive", errno);
    }
  }
  return {};
}

std::vector<std::string> own_addresses() {
  std::vector<std::string> addresses;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return addresses;
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    const bool usable =
        one->ifa_addr != nullptr && (one->ifa_flags & IFF_UP) != 0 && (one->ifa_flags & IFF_LOOPBACK) == 0;
    if (!usable) continue;
    const int family = one->ifa_addr->sa_family;
    Endpoint endpoint;
    if (family == AF_INET) {
      endpoint.size = sizeof(sockaddr_in);
    } else if (family == AF_INET6) {
      endpoint.size = sizeof(sockaddr_in6);
      // A link-local address means nothing without the interface of the one that dials.
      if (IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(one->ifa_addr)->sin6_addr)) continue;
    } else {
      continue;
    }
    std::memcpy(&endpoint.storage, one->ifa_addr, endpoint.size);
    addresses.push_back(endpoint.address());
  }
  freeifaddrs(all);
  return addresses;
}

Result<std::string> local_address(const Socket& socket) {
  Endpoint endpoint;
  endpoint.size = sizeof endpoint.storage;
  if (getsockname(socket.get(), reinterpret_cast<sockaddr*>(&endpoint.storage), &endpoint.size) != 0)
    return failed_errno("getsockname", errno);
  return endpoint.address();
}

std::vector<std::string> addresses_beside(const std::string& met_at, std::vector<std::string> own) {
  if (is_private(met_at)) std::erase_if(own, [](const std::string& one) { return !is_private(one); });
  return own;
}

}  // namespace tutti::comm
