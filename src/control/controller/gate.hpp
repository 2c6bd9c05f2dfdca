// Who sends a request, by the token that it shows. The network loop's.
#pragma once

#include <optional>
#include <set>
#include <string>

#include "base/rate.hpp"
#include "control/controller/routes.hpp"
#include "control/people/door.hpp"

namespace tutti::controller {

struct Tokens {
  std::string admin;
  std::string join;
};

// What a request has shown: nothing, an agent's token, or who somebody is.
struct Identity {
  bool agent = false;
  std::optional<people::Caller> caller = {};
  people::Credential credential = {};  // of the caller

  bool known() const { return agent || caller; }
  // Not: in the queue that it concerns, which is looked at later.
  bool meets(Need need) const;
};

class Gate {
 public:
  explicit Gate(Tokens tokens) : tokens_(std::move(tokens)) {}

  Identity identify(const std::string& secret, Instant now) const;
  void change(const people::DoorChanges& changes) { doors_.change(changes); }

 private:
  Tokens tokens_;
  people::Doors doors_;
};

}  // namespace tutti::controller
