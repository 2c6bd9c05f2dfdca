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

// What became of some tokens, and of some persons: nothing is left of tokens that are gone, and of whoever is
// gone or blocked, whose tokens open nothing. The roles of a person are here once, however many tokens he
// has.
struct DoorChanges {
  bool all = false;  // these are all that there are
  std::vector<std::pair<TokenId, std::optional<Token>>> tokens = {};
  std::vector<std::pair<Name, std::optional<std::vector<Grant>>>> persons = {};

  bool empty() const { return !all && tokens.empty() && persons.empty(); }
};

DoorChanges all_doors(const People& people);
DoorChanges doors_of(const People& people, const std::set<TokenId>& tokens, const std::set<Name>& persons);

// "tutti-ID-SECRET": the id of what looks like a token of a person, "" of anything else.
TokenId id_in(std::string_view text);
std::string text_of_token(const TokenId& id, std::string_view secret);

class Doors {
 public:
  void change(DoorChanges changes);
  // `hash` is that of what was shown. Nothing if it opens nothing; what has expired does not.
  std::optional<Caller> open(const TokenId& id, std::string_view hash, Instant now) const;

 private:
  std::map<TokenId, Token> tokens_;
  std::map<Name, std::vector<Grant>> roles_;
};

}  // namespace tutti::people
