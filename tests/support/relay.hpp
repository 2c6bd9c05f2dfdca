// Stands between two programs as the network does, and can be broken: then nothing comes through, in either
// direction, and nobody is told. Any thread.
#pragma once

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "base/files/descriptor.hpp"

namespace tutti::support {

class Relay {
 public:
  // Passes on to 127.0.0.1:PORT.
  explicit Relay(int port);
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;
  ~Relay();

  // Where to connect instead.
  std::string address() const { return address_; }

  void cut() { tell(State::cut); }
  // What was sent meanwhile comes late.
  void mend() { tell(State::whole); }

 private:
  enum class State { whole, cut, ending };
  struct Connection {
    files::FileDescriptor near;
    files::FileDescriptor far;
    bool pass(bool outwards) const;  // false when it has ended
  };

  void tell(State state);
  void run();
  void accept_one();

  int port_;
  std::string address_;
  files::FileDescriptor listener_;
  files::FileDescriptor news_;  // an eventfd: the state has changed
  std::atomic<State> state_ = State::whole;
  std::vector<Connection> connections_;
  std::thread thread_;
};

}  // namespace tutti::support
