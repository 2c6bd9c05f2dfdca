// What a turn has changed, as events for those who watch: thousands of changes, and thousands of watchers,
// each of whom may see some. What many may see is one text that they share. On the network loop.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "control/driver/delivery.hpp"
#include "control/people/may.hpp"
#include "net/http/http.hpp"

namespace tutti::controller {

// One server-sent event.
std::string event_text(std::string_view name, std::string_view data);

class TurnEvents {
 public:
  // The delivery has to stay.
  explicit TurnEvents(const driver::Delivery& delivery) : delivery_(delivery) {}

  // Those that the caller may see.
  void tell(const people::Caller& caller, net::Stream& stream);

 private:
  using Jobs = std::vector<const driver::Delivery::JobChange*>;
  struct OfUser {
    Jobs jobs = {};
    net::Text text = nullptr;
  };
  struct OfQueue {
    Jobs jobs = {};
    net::Text text = nullptr;
    std::map<std::string, OfUser> of_users = {};
  };

  const net::Text& all();
  void sort();
  std::string nodes_text() const;
  static const net::Text& text_of(const Jobs& jobs, net::Text& text);

  const driver::Delivery& delivery_;
  bool sorted_ = false;
  std::map<std::string, OfQueue> queues_;
  net::Text nodes_;
  net::Text all_;
};

}  // namespace tutti::controller
