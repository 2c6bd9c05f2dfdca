// Connections that have not shown a token yet: not for long, only so many, and only so many of one address.
// Where there is no room the oldest of them makes some; those that have shown one are not among them. On the
// loop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>

namespace tutti::net {

class Lobby {
 public:
  using Guest = std::uint64_t;  // in the order in which they came; 0 is nobody

  Lobby(std::size_t guests_max, std::size_t guests_per_address_max)
      : guests_max_(guests_max), guests_per_address_max_(guests_per_address_max) {}
  Lobby(const Lobby&) = delete;
  Lobby& operator=(const Lobby&) = delete;

  // `close` ends its connection, and is called at most once: when it has to make room.
  Guest enter(const std::string& address, std::function<void()> close);
  // It has shown a token, or is gone.
  void leave(Guest guest);
  // Sends the oldest away, of this address or of all. False if there is nobody.
  bool make_room(const std::string& address);
  bool make_room();

  // Where the most of them come from; "" if there is nobody.
  std::string largest_address() const;

  std::size_t guests() const { return guests_.size(); }

 private:
  struct Entry {
    std::string address;
    std::function<void()> close;
  };
  void send_away(Guest guest);

  const std::size_t guests_max_;
  const std::size_t guests_per_address_max_;
  Guest next_ = 1;
  std::map<Guest, Entry> guests_;
  std::map<std::string, std::set<Guest>> by_address_;
};

}  // namespace tutti::net
