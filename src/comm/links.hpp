// Data connections between ranks of different hosts. A link belongs to one group and carries its operations
// only, so nobody has to tell bytes of different groups apart. The rank with the lower number dials; which of
// the peer's addresses it takes is found out by trying them: the route with the most bandwidth wins, whatever
// its interface is called. One thread of its own, which opens the door. Any thread may call it.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "base/result.hpp"
#include "comm/algorithm.hpp"
#include "comm/fault.hpp"
#include "comm/socket.hpp"

namespace tutti::comm {

// The secret of a world, made by rank 0: a stranger that finds the port does not get in.
using Cookie = std::array<std::uint64_t, 2>;

// Where a rank can be reached.
struct Address {
  int rank = 0;
  std::string host;                    // ranks with the same text share a host
  std::vector<std::string> addresses;  // of its interfaces
  std::uint16_t port = 0;
};

// What a road can do, measured.
struct Route {
  Endpoint endpoint;
  Cost cost;
};

struct Link {
  int rank = 0;
  std::vector<Socket> sockets;
};

class Links {
 public:
  // Listens on loopback and on these addresses of this host, as far as they can be had.
  static Result<std::unique_ptr<Links>> start(const std::vector<std::string>& addresses);
  ~Links();

  std::uint16_t port() const { return port_; }

  // Nobody is let in before this; who comes earlier waits.
  void open(int rank, std::string host, const Cookie& cookie);

  // Both ranks call it. `sockets` connections, waiting until the deadline at most.
  Result<Link> connect(std::uint64_t group, const Address& peer, std::size_t sockets,
                       Clock::time_point deadline, const Fault& fault);

  // The best of the peer's addresses, measured at the first call for its host.
  Result<Route> route(const Address& peer, Clock::time_point deadline, const Fault& fault);

 private:
  Links() = default;

  struct Visitor;  // a connection whose purpose is not known yet, or a measurement
  struct Hello;
  using Key = std::tuple<std::uint64_t, int, std::uint32_t>;  // group, rank, number of the socket

  void run();
  bool serve(Visitor& visitor);
  bool admit(Visitor& visitor);
  Result<Route> measure(const Address& peer, const Endpoint& endpoint, Clock::time_point deadline) const;
  Result<Socket> knock(const Address& peer, const Endpoint& endpoint, Hello hello,
                       Clock::time_point deadline) const;

  // All at one port. False if one of them cannot be had there.
  Result<bool> listen(std::vector<std::string> addresses);

  std::vector<Socket> listeners_;
  std::uint16_t port_ = 0;
  int wake_ = -1;
  std::atomic<bool> stopping_{false};
  std::thread thread_;

  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  bool open_ = false;
  int rank_ = -1;
  std::string host_;
  Cookie cookie_{};
  std::map<Key, Socket> arrivals_;
  std::map<std::string, Route> routes_;
};

}  // namespace tutti::comm
