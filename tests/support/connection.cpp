#include "support/connection.hpp"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>

#include <gtest/gtest.h>

namespace tutti::support {
namespace {

constexpr int patience_ms = 20'000;

sockaddr_in address_of(const std::string& host, std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  EXPECT_EQ(::inet_pton(AF_INET, host.c_str(), &address.sin_addr), 1) << host;
  return address;
}

}  // namespace

Connection::Connection(std::uint16_t port, const std::string& from)
    : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  const auto here = address_of(from, 0);
  EXPECT_EQ(::bind(socket_, reinterpret_cast<const sockaddr*>(&here), sizeof here), 0);
  const auto there = address_of("127.0.0.1", port);
  EXPECT_EQ(::connect(socket_, reinterpret_cast<const sockaddr*>(&there), sizeof there), 0);
}

Connection::~Connection() { ::close(socket_); }

void Connection::send(const std::string& bytes) const {
  std::size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t part = ::send(socket_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (part <= 0) return;
    sent += static_cast<std::size_t>(part);
  }
}

std::string Connection::read_until(const std::string& text) const {
  std::string all;
  std::array<char, 4096> buffer;
  pollfd waited{socket_, POLLIN, 0};
  while (::poll(&waited, 1, patience_ms) > 0) {
    const ssize_t got = ::recv(socket_, buffer.data(), buffer.size(), 0);
    if (got <= 0) return all;
    all.append(buffer.data(), static_cast<std::size_t>(got));
    if (!text.empty() && all.find(text) != std::string::npos) return all;
  }
  ADD_FAILURE() << "the connection stays open: " << all;
  return all;
}

}  // namespace tutti::support
