// What anybody shows as a token of a person: whatever it is, its id is found or not, and a door opens for the
// very text of which the store has the hash, and for nothing that is only like it.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.hpp"
#include "control/people/door.hpp"

namespace {

using namespace tutti::people;

// In place of SHA-256, which a pure module does not have: no two texts have the same.
std::string hash_of(std::string_view text) { return "hash of " + std::string(text); }

// A cluster in which only the token of this text opens something, until it expires.
Doors doors_for(const TokenId& id, std::string_view text, tutti::Instant expires_at) {
  People people;
  people.persons["ada"] = {.name = "ada", .grants = {{Role::user, "research"}}};
  add(people, {.id = id, .person = "ada", .hash = hash_of(text), .expires_at = expires_at});
  Doors doors;
  doors.change(all_doors(people));
  return doors;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const TokenId id = id_in(text);
  if (id.empty()) return 0;
  // What is accepted is in the one form that is written, and has a secret.
  const std::size_t secret_at = text_of_token(id, "").size();
  TUTTI_CHECK(text.size() > secret_at && text == text_of_token(id, text.substr(secret_at)));
  TUTTI_CHECK(id_in(text.substr(0, secret_at)).empty());

  const tutti::Instant expires_at(std::chrono::hours(24));
  const tutti::Instant now = expires_at - std::chrono::hours(1);
  const Doors doors = doors_for(id, text, expires_at);
  TUTTI_CHECK(doors.open(id, hash_of(text), now).has_value());
  TUTTI_CHECK(!doors.open(id, hash_of(text), expires_at));
  std::string other = text;
  other.back() = static_cast<char>(other.back() ^ 1);
  for (const std::string& wrong : {other, text + "0", text.substr(0, text.size() - 1), std::string()})
    TUTTI_CHECK(!doors.open(id, hash_of(wrong), now));
  TUTTI_CHECK(!doors.open(id, "", now));
  return 0;
}
