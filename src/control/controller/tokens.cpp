#include "control/controller/tokens.hpp"

#include <algorithm>
#include <string_view>

#include "base/bytes.hpp"
#include "base/files/files.hpp"
#include "base/log/log.hpp"
#include "base/text.hpp"
#include "control/controller/random_text.hpp"
#include "control/people/door.hpp"
#include "net/sync/digest.hpp"

namespace tutti::controller {
namespace {

constexpr std::size_t token_bytes = 32;
constexpr std::size_t person_token_id_bytes = 8;
constexpr std::size_t token_file_bytes_max = 4096;
constexpr std::size_t token_length_min = 16;

std::string token_in(const std::string& text) {
  return std::string(trim(std::string_view(text).substr(0, text.find('\n'))));
}

// It travels in a line of HTTP.
bool is_token(std::string_view text) {
  return text.size() >= token_length_min &&
         std::all_of(text.begin(), text.end(), [](char letter) { return letter > ' ' && letter <= '~'; });
}

// A machine that loses its power may leave zeros where something was to be written.
bool is_blank(std::string_view text) {
  return text.find_first_not_of(std::string_view(" \t\r\n\0", 5)) == std::string_view::npos;
}

Error no_token(const std::string& file) {
  return invalid("it holds no token")
      .within("token file " + file)
      .remedy(
          "put the token back, or remove the file: `tutti controller init`, and `tutti up`, make a new one");
}

}  // namespace

Result<std::string> read_token(const std::string& file) {
  const auto text = files::read_existing_file(file, token_file_bytes_max);
  if (!text) return Error(text.error()).within("token file");
  std::string token = token_in(*text);
  if (!is_token(token)) return no_token(file);
  return token;
}

Result<> make_token(const std::string& file, bool expected) {
  const auto text = files::read_file(file, token_file_bytes_max);
  if (!text) return Error(text.error()).within("token file");
  if (*text && is_token(token_in(**text))) return {};
  if (*text && !is_blank(**text)) return no_token(file);
  if (*text || expected)
    log::warning("{} is {}: a new token is made, and who has the old one is refused until it has this one",
                 file, *text ? "empty" : "gone");
  auto secret = random_hex(token_bytes);
  if (!secret) return std::move(secret).error();
  return files::replace_file(file, *secret + "\n", {.mode = 0600, .durable = true});
}

Result<NewToken> new_token(people::Token wish) {
  auto id = random_hex(person_token_id_bytes);
  const auto secret = random_hex(token_bytes);
  if (!id || !secret) return id ? secret.error() : id.error();
  wish.id = *std::move(id);
  NewToken made{std::move(wish), ""};
  made.text = people::text_of_token(made.token.id, *secret);
  made.token.hash = sync::hash_bytes(as_bytes(made.text));
  return made;
}

}  // namespace tutti::controller
