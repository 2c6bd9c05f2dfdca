// Whether the other side of a connection is still there, while nothing is read of it: what it has sent waits
// in the system, which takes no more than its buffers hold. For this module's own files only.
#pragma once

#include <functional>
#include <memory>

#include <boost/asio/ip/tcp.hpp>

namespace tutti::net {

class Leaving {
 public:
  // `gone` runs on the loop, at most once, and not after this has ended. The socket outlives it; of what is
  // under way on it nothing may be left when this ends.
  Leaving(boost::asio::ip::tcp::socket& socket, std::function<void()> gone);
  Leaving(const Leaving&) = delete;
  Leaving& operator=(const Leaving&) = delete;
  ~Leaving();

 private:
  class Watch;
  const std::shared_ptr<Watch> watch_;
};

}  // namespace tutti::net
