// A line for each address, and turns between them: whoever asks for much waits for itself, and the next one
// for one thing of each of the others. How many wait in all is bounded, and nobody takes all the places.
// Values.
#pragma once

#include <cstddef>
#include <deque>
#include <list>
#include <map>
#include <new>
#include <string>
#include <utility>

#include "base/check.hpp"
#include "base/portions.hpp"

namespace tutti::controller {

template <class Item>
class Lines {
 public:
  explicit Lines(std::size_t waiting_max) : places_(waiting_max) {}

  // False if too much waits, of all or of this address. Where there is no memory for it that is thrown, and
  // it does not wait.
  [[nodiscard]] bool add(const std::string& address, Item item) {
    if (!places_.take(address)) return false;
    try {
      put(address, std::move(item));
    } catch (const std::bad_alloc&) {
      places_.give_back(address);
      throw;
    }
    return true;
  }

  bool empty() const { return turns_.empty(); }

  // Of the address whose turn it is.
  Item take() {
    TUTTI_CHECK(!turns_.empty());
    const auto line = lines_.find(turns_.front());
    Item item = std::move(line->second.front());
    line->second.pop_front();
    places_.give_back(line->first);
    if (line->second.empty()) {
      lines_.erase(line);
      turns_.pop_front();
    } else {
      turns_.splice(turns_.end(), turns_, turns_.begin());
    }
    return item;
  }

 private:
  // All of it or nothing: an address that has a turn has something in its line.
  void put(const std::string& address, Item item) {
    const auto line = lines_.try_emplace(address).first;
    const bool is_first = line->second.empty();
    try {
      line->second.push_back(std::move(item));
      if (is_first) turns_.push_back(address);
    } catch (const std::bad_alloc&) {
      if (is_first) lines_.erase(line);
      throw;
    }
  }

  std::map<std::string, std::deque<Item>> lines_;  // of those who wait
  std::list<std::string> turns_;                   // the same, the next first
  Portions places_;                                // by address
};

}  // namespace tutti::controller
