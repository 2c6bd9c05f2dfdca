#include "control/people/door.hpp"

#include <algorithm>

namespace tutti::people {
namespace {

constexpr std::string_view mark = "tutti-";
constexpr std::size_t id_letters = 16;

// Without regard to when it expires: that is looked at when it is shown.
std::optional<Door> door_of(const People& people, const TokenId& id) {
  const auto token = people.tokens.find(id);
  if (token == people.tokens.end()) return std::nullopt;
  auto caller = caller_of(people, {.token = id}, Instant());
  if (!caller) return std::nullopt;
  return Door{token->second.hash, *std::move(caller)};
}

// All of it is looked at, whatever is wrong first.
bool same(std::string_view one, std::string_view other) {
  if (one.size() != other.size()) return false;
  unsigned difference = 0;
  for (std::size_t at = 0; at < one.size(); ++at)
    difference |= static_cast<unsigned>(static_cast<unsigned char>(one[at] ^ other[at]));
  return difference == 0;
}

}  // namespace

DoorChanges all_doors(const People& people) {
  DoorChanges changes{.all = true, .doors = {}};
  for (const auto& [id, token] : people.tokens) changes.doors.emplace_back(id, door_of(people, id));
  return changes;
}

DoorChanges doors_of(const People& people, const std::set<TokenId>& tokens, const std::set<Name>& persons) {
  std::set<TokenId> changed = tokens;
  for (const Name& name : persons) {
    if (const auto theirs = people.tokens_of.find(name); theirs != people.tokens_of.end())
      changed.insert(theirs->second.begin(), theirs->second.end());
  }
  DoorChanges changes;
  for (const TokenId& id : changed) changes.doors.emplace_back(id, door_of(people, id));
  return changes;
}

TokenId id_in(std::string_view text) {
  if (!text.starts_with(mark) || text.size() < mark.size() + id_letters + 2) return "";
  const std::string_view id = text.substr(mark.size(), id_letters);
  const bool sound = std::all_of(id.begin(), id.end(), [](char letter) {
    return (letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'f');
  });
  return sound && text[mark.size() + id_letters] == '-' ? TokenId(id) : "";
}

std::string text_of_token(const TokenId& id, std::string_view secret) {
  return std::string(mark) + id + "-" + std::string(secret);
}

void Doors::change(const DoorChanges& changes) {
  if (changes.all) doors_.clear();
  for (const auto& [id, door] : changes.doors) {
    if (door) {
      doors_.insert_or_assign(id, *door);
    } else {
      doors_.erase(id);
    }
  }
}

const Caller* Doors::open(const TokenId& id, std::string_view hash, Instant now) const {
  const auto door = doors_.find(id);
  if (door == doors_.end() || !same(hash, door->second.hash)) return nullptr;
  const Caller& caller = door->second.caller;
  return caller.until != Instant() && now >= caller.until ? nullptr : &caller;
}

}  // namespace tutti::people
