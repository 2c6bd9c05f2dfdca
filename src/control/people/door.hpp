// Which tokens open something, and for whom, as those who meet requests need it: a copy of what follows from
// the people of the state, kept in step by its changes. Pure; each copy is owned by one loop.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "control/people/may.hpp"

namespace tutti::people {

struct Door {
  std::string hash;  // SHA-256 of the whole text, in hex
  Caller caller;     // as it was when this was said
};

// What became of some tokens; those that open nothing any more have no door.
struct DoorChanges {
  bool all = false;  // these are all that there are
  std::vector<std::pair<TokenId, std::optional<Door>>> doors;

  bool empty() const { return !all && doors.empty(); }
};

DoorChanges all_doors(const People& people);
// Of these tokens, and of all tokens of these persons.
DoorChanges doors_of(const People& people, const std::set<TokenId>& tokens, const std::set<Name>& persons);

// "tutti-ID-SECRET": the id of what looks like a token of a person, "" of anything else.
TokenId id_in(std::string_view text);
std::string text_of_token(const TokenId& id, std::string_view secret);

class Doors {
 public:
  void change(const DoorChanges& changes);
  // `hash` is that of what was shown. Null if it opens nothing; what has expired does not.
  const Caller* open(const TokenId& id, std::string_view hash, Instant now) const;

 private:
  std::map<TokenId, Door> doors_;
};

}  // namespace tutti::people
