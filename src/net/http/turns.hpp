// Whose handshake goes on next. TLS takes an operation with the private key, milliseconds of the loop that
// has all connections, and whoever says hello is owed one: in the order in which they come, one address that
// says it thousands of times would be all that is heard. Here addresses take turns, each has one in a round,
// and between two rounds everybody else on the loop has had one. The loop's. For this module's own files
// only.
#pragma once

#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

namespace tutti::net {

class Turns final : public std::enable_shared_from_this<Turns> {
 public:
  // One who waits: until its timer is cancelled, which is its turn, or until that ends, which is too late.
  // Whoever waits keeps it, so that one who has gone otherwise leaves no turn behind.
  struct Place {
    boost::asio::steady_timer timer;
    std::function<bool()> has_left;  // the other side: then its turn is nobody's, and the next one's comes
  };

  Turns(boost::asio::io_context& context, std::size_t at_once) : context_(context), at_once_(at_once) {}

  // Its timer is waited for already.
  void enter(const std::string& address, const std::shared_ptr<Place>& place);

 private:
  using Line = std::deque<std::weak_ptr<Place>>;

  void post_round();
  void next_round();
  // False if of those it has looked at nobody wants a turn.
  bool call_one(Line& line, std::size_t& looks);

  boost::asio::io_context& context_;
  const std::size_t at_once_;
  std::map<std::string, Line> lines_;  // of addresses of which somebody waits
  std::list<std::string> addresses_;   // the same, the next first
  bool is_round_ = false;
};

}  // namespace tutti::net
