// A plain TCP connection to a port of this machine, for a test that says exactly which bytes it sends. One
// thread.
#pragma once

#include <cstdint>
#include <string>

namespace tutti::support {

class Connection {
 public:
  // `from` is the address that the other side sees: all of 127.0.0.0/8 is this machine.
  explicit Connection(std::uint16_t port, const std::string& from = "127.0.0.1");
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection();

  // All of it, or as much as the other side wants to hear.
  void send(const std::string& bytes) const;
  // All that comes until the other side closes.
  std::string read() const { return read_until(""); }
  // All that comes until the text has come, or until the other side closes.
  std::string read_until(const std::string& text) const;

 private:
  int socket_;
};

}  // namespace tutti::support
