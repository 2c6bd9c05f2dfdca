// Splits a stream of server-sent events: "event: x\ndata: y\n\n". Lines may end as those of a head do, and
// the space behind a colon is no part of what is said. Values. For this module's own files only.
#pragma once

#include <string>
#include <string_view>

#include "net/http/client.hpp"

namespace tutti::net {

class EventSplitter {
 public:
  // False when the callback wants no more. An error: a line or an event is longer than any may be.
  Result<bool> feed(std::string_view bytes, const Client::OnEvent& on_event);

 private:
  void take(std::string_view line);

  std::string pending_;  // a line that has not ended
  std::string event_;
  std::string data_;
};

}  // namespace tutti::net
