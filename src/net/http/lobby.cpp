#include "net/http/lobby.hpp"

#include <algorithm>
#include <new>
#include <utility>

namespace tutti::net {

Lobby::Guest Lobby::enter(const std::string& address, std::function<void()> close) {
  const auto here = by_address_.find(address);
  if (here != by_address_.end() && here->second.size() >= guests_per_address_max_) make_room(address);
  if (guests_.size() >= guests_max_) make_room();
  const Guest guest = next_++;
  guests_.emplace(guest, Entry{address, std::move(close)});
  try {
    by_address_[address].insert(guest);
  } catch (const std::bad_alloc&) {
    leave(guest);
    throw;
  }
  return guest;
}

void Lobby::leave(Guest guest) {
  const auto found = guests_.find(guest);
  if (found == guests_.end()) return;
  const auto here = by_address_.find(found->second.address);
  if (here != by_address_.end()) {
    here->second.erase(guest);
    if (here->second.empty()) by_address_.erase(here);
  }
  guests_.erase(found);
}

void Lobby::send_away(Guest guest) {
  const auto close = std::move(guests_.at(guest).close);
  leave(guest);
  close();
}

bool Lobby::make_room(const std::string& address) {
  const auto here = by_address_.find(address);
  if (here == by_address_.end()) return false;
  send_away(*here->second.begin());
  return true;
}

std::string Lobby::largest_address() const {
  const auto largest = std::max_element(
      by_address_.begin(), by_address_.end(),
      [](const auto& one, const auto& other) { return one.second.size() < other.second.size(); });
  return largest == by_address_.end() ? "" : largest->first;
}

bool Lobby::make_room() {
  if (guests_.empty()) return false;
  send_away(guests_.begin()->first);
  return true;
}

}  // namespace tutti::net
