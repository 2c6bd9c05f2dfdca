#include "support/relay.hpp"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdint>

#include "base/check.hpp"

namespace tutti::support {
namespace {

sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

files::FileDescriptor make_socket() {
  return files::FileDescriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
}

bool readable(const pollfd& polled) { return (polled.revents & (POLLIN | POLLHUP | POLLERR)) != 0; }

}  // namespace

Relay::Relay(int port) : port_(port), listener_(make_socket()), news_(::eventfd(0, EFD_CLOEXEC)) {
  sockaddr_in address = loopback(0);
  socklen_t size = sizeof address;
  auto* general = reinterpret_cast<sockaddr*>(&address);
  TUTTI_CHECK(::bind(listener_.get(), general, size) == 0 && ::listen(listener_.get(), SOMAXCONN) == 0);
  TUTTI_CHECK(::getsockname(listener_.get(), general, &size) == 0);
  address_ = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  thread_ = std::thread([this] { run(); });
}

Relay::~Relay() {
  tell(State::ending);
  thread_.join();
}

void Relay::tell(State state) {
  state_ = state;
  const std::uint64_t one = 1;
  TUTTI_CHECK(::write(news_.get(), &one, sizeof one) == sizeof one);
}

void Relay::run() {
  while (state_ != State::ending) {
    // While it is cut, connections are left alone: what comes stays in the kernel.
    std::vector<pollfd> polled{{news_.get(), POLLIN, 0}};
    if (state_ == State::whole) {
      polled.push_back({listener_.get(), POLLIN, 0});
      for (const Connection& connection : connections_) {
        polled.push_back({connection.near.get(), POLLIN, 0});
        polled.push_back({connection.far.get(), POLLIN, 0});
      }
    }
    if (::poll(polled.data(), polled.size(), -1) < 0) continue;
    if (readable(polled[0])) {
      std::uint64_t count = 0;
      TUTTI_CHECK(::read(news_.get(), &count, sizeof count) == sizeof count);
      continue;
    }
    std::size_t at = 2;
    std::erase_if(connections_, [&](const Connection& connection) {
      const bool outwards = readable(polled[at++]);
      const bool inwards = readable(polled[at++]);
      return (outwards && !connection.pass(true)) || (inwards && !connection.pass(false));
    });
    if (readable(polled[1])) accept_one();
  }
}

void Relay::accept_one() {
  Connection connection{files::FileDescriptor(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)),
                        make_socket()};
  const sockaddr_in target = loopback(port_);
  const auto* general = reinterpret_cast<const sockaddr*>(&target);
  if (!connection.near.valid() || ::connect(connection.far.get(), general, sizeof target) != 0) return;
  connections_.push_back(std::move(connection));
}

bool Relay::Connection::pass(bool outwards) const {
  std::array<char, 65536> buffer;
  const ssize_t count = ::recv((outwards ? near : far).get(), buffer.data(), buffer.size(), 0);
  for (ssize_t sent = 0; sent < count;) {
    const ssize_t more = ::send((outwards ? far : near).get(), buffer.data() + sent,
                                static_cast<std::size_t>(count - sent), MSG_NOSIGNAL);
    if (more <= 0) return false;
    sent += more;
  }
  return count > 0;
}

}  // namespace tutti::support
