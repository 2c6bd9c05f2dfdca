// TCP sockets as comm needs them: non-blocking, with deadlines, and addresses as text. Any thread.
#pragma once

#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "comm/signal.hpp"

namespace tutti::comm {

// Who connects and does not say who it is by then is turned away.
inline constexpr auto hello_time = std::chrono::seconds(10);

// Owns a descriptor.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~Socket();

  int get() const { return descriptor_; }
  bool valid() const { return descriptor_ >= 0; }

 private:
  int descriptor_ = -1;
};

// An address with its port.
struct Endpoint {
  sockaddr_storage storage{};
  socklen_t size = 0;

  // "10.0.0.1", "fe80::1%3", with the port beside it.
  static Result<Endpoint> of(const std::string& address, std::uint16_t port);
  // Asks the system's resolver for a name too.
  static Result<std::vector<Endpoint>> resolve(const std::string& host, std::uint16_t port);
  std::string address() const;
  std::uint16_t port() const;
};

// Port 0 takes a free one. Non-blocking.
Result<Socket> listen_on(const Endpoint& endpoint);
Result<std::uint16_t> port_of(const Socket& listener);

// Connects until the deadline. Non-blocking, without Nagle's delay.
Result<Socket> dial(const Endpoint& endpoint, Clock::time_point deadline);

// An accepted connection, prepared as dial() does; not valid() if there is none.
Socket accept_from(const Socket& listener);

// All bytes or an error, waiting in poll(2).
Result<> send_all(const Socket& socket, std::string_view bytes, Clock::time_point deadline);
Result<> receive_all(const Socket& socket, void* data, std::size_t bytes, Clock::time_point deadline);

// The addresses of this host's interfaces that are up, loopback left out.
std::vector<std::string> own_addresses();

// The address of this side.
Result<std::string> local_address(const Socket& socket);

// Those of them on which others of that network are waited for: where ranks meet at a private address, no
// public one.
std::vector<std::string> addresses_beside(const std::string& met_at, std::vector<std::string> own);

int milliseconds_until(Clock::time_point deadline);

}  // namespace tutti::comm
