#include "control/people/door.hpp"

#include <algorithm>

namespace tutti::people {
namespace {

constexpr std::string_view mark = "tutti-";
constexpr std::size_t id_letters = 16;

// Without what nobody asks of it here.
std::optional<Token> bare(Token token) {
  token.purpose.clear();
  return token;
}

std::optional<std::vector<Grant>> roles_of(const Person& person) {
  if (person.blocked) return std::nullopt;
  return person.grants;
}

void follow(auto& known, auto changes) {
  for (auto& [id, now] : changes) {
    if (now) {
      known.insert_or_assign(id, *std::move(now));
    } else {
      known.erase(id);
    }
  }
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
  DoorChanges changes{.all = true};
  for (const auto& [id, token] : people.tokens) changes.tokens.emplace_back(id, bare(token));
  for (const auto& [name, person] : people.persons) changes.persons.emplace_back(name, roles_of(person));
  return changes;
}

DoorChanges doors_of(const People& people, const std::set<TokenId>& tokens, const std::set<Name>& persons) {
  DoorChanges changes;
  for (const TokenId& id : tokens) {
    const auto token = people.tokens.find(id);
    changes.tokens.emplace_back(id, token == people.tokens.end() ? std::nullopt : bare(token->second));
  }
  for (const Name& name : persons) {
    const auto person = people.persons.find(name);
    changes.persons.emplace_back(name,
                                 person == people.persons.end() ? std::nullopt : roles_of(person->second));
  }
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

void Doors::change(DoorChanges changes) {
  if (changes.all) {
    tokens_.clear();
    roles_.clear();
  }
  follow(tokens_, std::move(changes.tokens));
  follow(roles_, std::move(changes.persons));
}

std::optional<Caller> Doors::open(const TokenId& id, std::string_view hash, Instant now) const {
  const auto token = tokens_.find(id);
  if (token == tokens_.end() || !same(hash, token->second.hash)) return std::nullopt;
  const auto roles = roles_.find(token->second.person);
  if (roles == roles_.end() || has_expired(token->second, now)) return std::nullopt;
  return caller_with(token->second, roles->second);
}

}  // namespace tutti::people
