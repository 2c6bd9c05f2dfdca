// A line for each address, and turns between them: whoever asks for much waits for itself, and the next one
// for one thing of each of the others. How many wait in all is bounded, and nobody takes all the places.
// Values.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <string>
#include <utility>

#include "base/check.hpp"
#include "base/portions.hpp"

namespace tutti::controller {

template <class Item>
class Lines {
 public:
  explicit Lines(std::size_t waiting_max) : places_(waiting_max) {}

  // False if too much waits, of all or of this address.
  [[nodiscard]] bool add(const std::string& address, Item item) {
    if (!places_.take(address)) return false;
    std::deque<Item>& line = lines_[address];
    if (line.empty()) turns_.push_back(address);
    line.push_back(std::move(item));
    return true;
  }

  bool empty() const { return turns_.empty(); }

  // Of the address whose turn it is.
  Item take() {
    TUTTI_CHECK(!turns_.empty());
    std::string address = std::move(turns_.front());
    turns_.pop_front();
    const auto line = lines_.find(address);
    Item item = std::move(line->second.front());
    line->second.pop_front();
    places_.give_back(address);
    if (line->second.empty()) {
      lines_.erase(line);
    } else {
      turns_.push_back(std::move(address));
    }
    return item;
  }

 private:
  std::map<std::string, std::deque<Item>> lines_;  // of those who wait
  std::deque<std::string> turns_;                  // the same, the next first
  Portions places_;                                // by address
};

}  // namespace tutti::controller
