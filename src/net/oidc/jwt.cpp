#include "net/oidc/jwt.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <optional>

#include "base/json/parse.hpp"
#include "base/visible.hpp"
#include "net/oidc/base64url.hpp"
#include "net/oidc/members.hpp"

namespace tutti::oidc {
namespace {

constexpr std::size_t claims_max = 4096;  // each member and element of a list is one
constexpr std::size_t shown_algorithm_bytes_max = 16;
constexpr double seconds_max = 253'402'300'799.0;  // the year 9999
// The last whole second that an Instant can be: in the year 2262. What expires later expires then.
constexpr auto last_second = std::chrono::duration_cast<std::chrono::seconds>(Duration::max());

struct Parts {
  std::string_view header;
  std::string_view claims;
  std::string_view signature;
  std::string_view signed_text;
};

Result<Parts> take_apart(std::string_view token) {
  if (token.size() > token_bytes_max)
    return invalid("it is longer than " + std::to_string(token_bytes_max) + " bytes");
  const std::size_t first = token.find('.');
  const std::size_t second = first == std::string_view::npos ? first : token.find('.', first + 1);
  if (second == std::string_view::npos || token.find('.', second + 1) != std::string_view::npos)
    return invalid("it is no signed token: it has not three parts");
  return Parts{token.substr(0, first), token.substr(first + 1, second - first - 1), token.substr(second + 1),
               token.substr(0, second)};
}

Result<json::Value> read_object(std::string_view part, const std::string& what) {
  const auto text = from_base64url(part);
  if (!text) return invalid("its " + what + " is no base64url");
  if (auto fine = json::scan(*text, claims_max); !fine)
    return invalid("its " + what + " is no JSON that is taken: " + fine.error().message());
  auto value = json::parse(*text);
  if (!value || value->object() == nullptr) return invalid("its " + what + " is no object of JSON");
  return value;
}

bool same_letters(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](unsigned char one, unsigned char other) {
    return std::tolower(one) == std::tolower(other);
  });
}

Result<Header> header_from(const json::Value& header) {
  if (header.find("crit") != nullptr) return invalid("it demands what is not understood here (crit)");
  // An access token has the same signature, and is not for whoever holds it.
  if (header.find("typ") != nullptr &&
      (text_in(header, "typ") == nullptr || !same_letters(*text_in(header, "typ"), "JWT")))
    return invalid("it is another kind of token than one that tells who somebody is (typ)");
  const std::string* named = text_in(header, "alg");
  if (named == nullptr) return invalid("it does not say how it is signed (alg)");
  const auto algorithm = algorithm_named(*named);
  if (!algorithm)
    return invalid("it is signed with '" + visible_line(named->substr(0, shown_algorithm_bytes_max)) +
                   "', and only RS256, ES256 and EdDSA are taken");
  Header read{*algorithm, ""};
  if (header.find("kid") == nullptr) return read;
  const std::string* id = text_in(header, "kid");
  if (id == nullptr || id->empty() || id->size() > key_id_bytes_max)
    return invalid("it names its key with no name of one (kid)");
  read.key_id = *id;
  return read;
}

Result<> check_audience(const json::Value& claims, const Expected& expected) {
  const json::Value* audience = claims.find("aud");
  const json::Array* list = audience == nullptr ? nullptr : audience->list();
  const auto is_us = [&](const json::Value& value) {
    return value.text() != nullptr && *value.text() == expected.client_id;
  };
  const bool ours = audience != nullptr &&
                    (list == nullptr ? is_us(*audience) : std::any_of(list->begin(), list->end(), is_us));
  if (!ours) return invalid("it is not for the client " + visible_line(expected.client_id) + " (aud)");
  const bool named = claims.find("azp") != nullptr;
  if (!named && (list == nullptr || list->size() == 1)) return {};
  const std::string* party = text_in(claims, "azp");
  if (party == nullptr || *party != expected.client_id)
    return invalid("it was given to another client than " + visible_line(expected.client_id) + " (azp)");
  return {};
}

// Seconds since 1970. An error if it is there and is none.
Result<std::optional<double>> seconds_in(const json::Value& claims, const std::string& name) {
  const json::Value* value = claims.find(name);
  if (value == nullptr) return std::optional<double>();
  const auto number = value->number();
  if (!number || !std::isfinite(*number) || *number < 0 || *number > seconds_max)
    return invalid("its " + name + " is no time");
  return std::optional<double>(*number);
}

std::string by_the_clocks() { return "compare the clocks of the issuer and of the controller"; }

// When it expires.
Result<Instant> check_times(const json::Value& claims, Instant now) {
  const auto expires = seconds_in(claims, "exp");
  if (!expires) return expires.error();
  const auto begins = seconds_in(claims, "nbf");
  if (!begins) return begins.error();
  const auto made = seconds_in(claims, "iat");
  if (!made) return made.error();
  if (!*expires || !*made) return invalid("it does not say from when until when it holds (iat, exp)");
  const double at = in_seconds(now.time_since_epoch());
  const double skew = in_seconds(clock_skew_max);
  if (at >= **expires + skew) return invalid("it has expired (exp)").remedy("log in again");
  if (*begins && at + skew < **begins) return invalid("it does not hold yet (nbf)").remedy(by_the_clocks());
  if (at + skew < **made) return invalid("it was made in the future (iat)").remedy(by_the_clocks());
  if (at >= **made + in_seconds(token_age_max) + skew)
    return invalid("it was made too long ago (iat)").remedy("log in again");
  return Instant(std::min(std::chrono::seconds(static_cast<std::int64_t>(**expires)), last_second));
}

Result<std::string> name_in(const json::Value& claims, const Expected& expected) {
  std::string claim = expected.name_claim;
  if (claim.empty()) claim = claims.find("preferred_username") != nullptr ? "preferred_username" : "sub";
  const std::string shown = visible_line(claim);
  const std::string remedy = "--oidc-name-claim of the controller chooses another one";
  const std::string* name = text_in(claims, claim);
  if (name == nullptr) return invalid("it has no name in its claim " + shown).remedy(remedy);
  if (claim == "email") {
    const json::Value* verified = claims.find("email_verified");
    if (verified == nullptr || verified->boolean() != true)
      return invalid("nobody has verified its email address (email_verified)").remedy(remedy);
  }
  if (!is_name(*name))
    return invalid("what stands in its claim " + shown +
                   " cannot be the name of a user: small letters, digits, '.', '_', '-', "
                   "'@', at most " +
                   std::to_string(name_bytes_max) + ", and not digits alone")
        .remedy(remedy);
  return *name;
}

Result<Identity> identity_from(const json::Value& claims, const Expected& expected, Instant now) {
  const std::string* issuer = text_in(claims, "iss");
  if (issuer == nullptr || *issuer != expected.issuer)
    return invalid("it is of another issuer than " + visible_line(expected.issuer) + " (iss)");
  if (auto ours = check_audience(claims, expected); !ours) return std::move(ours).error();
  const auto expires = check_times(claims, now);
  if (!expires) return expires.error();
  if (!expected.nonce.empty()) {
    const std::string* nonce = text_in(claims, "nonce");
    if (nonce == nullptr || *nonce != expected.nonce)
      return invalid("it was made for another login than this one (nonce)").remedy("log in again");
  }
  const std::string* subject = text_in(claims, "sub");
  if (subject == nullptr || subject->empty() || subject->size() > subject_bytes_max)
    return invalid("it does not say whom it means (sub)");
  auto name = name_in(claims, expected);
  if (!name) return std::move(name).error();
  return Identity{*issuer, *subject, std::move(*name), *expires};
}

}  // namespace

bool is_name(std::string_view text) {
  constexpr std::string_view digits = "0123456789";
  const auto is_letter = [](char letter) {
    return (letter >= 'a' && letter <= 'z') || (letter >= '0' && letter <= '9');
  };
  if (text.empty() || text.size() > name_bytes_max || !(is_letter(text.front()) || text.front() == '_'))
    return false;
  if (text.find_first_not_of(digits) == std::string_view::npos) return false;
  return std::all_of(text.begin(), text.end(), [&](char letter) {
    return is_letter(letter) || std::string_view("._-@").find(letter) != std::string_view::npos;
  });
}

Result<Header> read_header(std::string_view token) {
  const auto parts = take_apart(token);
  if (!parts) return parts.error();
  const auto header = read_object(parts->header, "header");
  if (!header) return header.error();
  return header_from(*header);
}

Result<Identity> verify(std::string_view token, const KeySet& keys, const Expected& expected, Instant now) {
  const auto header = read_header(token);
  if (!header) return header.error();
  const auto key = keys.find(header->key_id, header->algorithm);
  if (!key) return key.error();
  const auto parts = take_apart(token);
  const auto signature = from_base64url(parts->signature);
  if (!signature) return invalid("its signature is no base64url");
  if (!is_signed_by(*key, parts->signed_text, *signature))
    return invalid("its signature is not the issuer's: it was changed, or made by somebody else");
  const auto claims = read_object(parts->claims, "list of claims");
  if (!claims) return claims.error();
  return identity_from(*claims, expected, now);
}

}  // namespace tutti::oidc
