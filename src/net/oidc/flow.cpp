#include "net/oidc/flow.hpp"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>

#include <algorithm>
#include <cmath>

#include "base/check.hpp"
#include "base/json/parse.hpp"
#include "base/text.hpp"
#include "base/visible.hpp"
#include "net/oidc/base64url.hpp"
#include "net/oidc/jwt.hpp"
#include "net/oidc/members.hpp"

namespace tutti::oidc {
namespace {

constexpr std::size_t secret_bytes = 32;
constexpr std::size_t code_bytes_max = 4096;
constexpr std::size_t user_code_bytes_max = 64;
constexpr std::size_t shown_bytes_max = 256;
constexpr std::size_t answer_values_max = 4096;
constexpr int status_fine = 200;

bool same_secret(std::string_view given, std::string_view expected) {
  return given.size() == expected.size() && CRYPTO_memcmp(given.data(), expected.data(), given.size()) == 0;
}

std::string shown(std::string_view text) { return visible_line(cut_utf8(valid_utf8(text), shown_bytes_max)); }

// Of a query that has it once or not at all.
std::string value_in(const std::map<std::string, std::string>& query, const std::string& name) {
  const auto found = query.find(name);
  return found == query.end() ? "" : found->second;
}

Result<json::Value> read_answer(std::string_view body) {
  if (auto fine = json::scan(body, answer_values_max); !fine)
    return failed("the issuer's answer is no JSON that is taken: " + fine.error().message());
  auto value = json::parse(body);
  if (!value || value->object() == nullptr) return failed("the issuer's answer is no object of JSON");
  return value;
}

TokenAnswer refusal_in(const json::Value& answer) {
  return {"", shown(text_of(answer, "error")), shown(text_of(answer, "error_description"))};
}

// Seconds, at most the limit; the default where it says nothing.
Result<Duration> span_in(const json::Value& answer, const std::string& name, Duration otherwise,
                         Duration most) {
  const json::Value* value = answer.find(name);
  if (value == nullptr) return otherwise;
  const auto seconds = value->number();
  if (!seconds || !std::isfinite(*seconds) || *seconds < 0)
    return failed("the issuer's answer has a " + name + " that is no time");
  if (*seconds >= in_seconds(most)) return most;
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(*seconds));
}

}  // namespace

Result<std::string> random_letters(std::size_t bytes) {
  std::string random(bytes, '\0');
  if (RAND_bytes(reinterpret_cast<unsigned char*>(random.data()), static_cast<int>(random.size())) != 1)
    return failed("the system gives no random bytes");
  return to_base64url(random);
}

std::string challenge_of(const std::string& verifier) {
  std::string digest(EVP_MAX_MD_SIZE, '\0');
  unsigned int bytes = 0;
  const int done = EVP_Digest(verifier.data(), verifier.size(),
                              reinterpret_cast<unsigned char*>(digest.data()), &bytes, EVP_sha256(), nullptr);
  TUTTI_CHECK(done == 1);
  digest.resize(bytes);
  return to_base64url(digest);
}

Result<BrowserLogin> begin_browser_login(std::string redirect_url) {
  BrowserLogin login;
  login.redirect_url = std::move(redirect_url);
  for (std::string* secret : {&login.state, &login.nonce, &login.verifier}) {
    auto letters = random_letters(secret_bytes);
    if (!letters) return std::move(letters).error();
    *secret = std::move(*letters);
  }
  return login;
}

std::string address_for(const Provider& provider, const Client& client, const BrowserLogin& login) {
  return with_query(provider.authorization_url, {{"response_type", "code"},
                                                 {"client_id", client.id},
                                                 {"redirect_uri", login.redirect_url},
                                                 {"scope", client.scopes},
                                                 {"state", login.state},
                                                 {"nonce", login.nonce},
                                                 {"code_challenge", challenge_of(login.verifier)},
                                                 {"code_challenge_method", "S256"}});
}

std::optional<Result<std::string>> code_from(const std::map<std::string, std::string>& query,
                                             const Provider& provider, const BrowserLogin& login) {
  if (!same_secret(value_in(query, "state"), login.state)) return std::nullopt;
  // Where the issuer says who it is (RFC 9207), it has to be the one that was asked.
  if (query.contains("iss") && value_in(query, "iss") != provider.issuer)
    return failed("the answer is of another issuer than the one that was asked");
  if (const std::string refusal = value_in(query, "error"); !refusal.empty())
    return refused_by_issuer({"", shown(refusal), shown(value_in(query, "error_description"))});
  std::string code = value_in(query, "code");
  if (code.empty() || code.size() > code_bytes_max) return failed("the browser has brought no code back");
  return code;
}

Form code_form(const Client& client, const BrowserLogin& login, const std::string& code) {
  return {{"grant_type", "authorization_code"},
          {"code", code},
          {"redirect_uri", login.redirect_url},
          {"client_id", client.id},
          {"code_verifier", login.verifier}};
}

Result<TokenAnswer> read_token_answer(int status, std::string_view body) {
  const auto answer = read_answer(body);
  if (!answer) return Error(answer.error()).within("HTTP status " + std::to_string(status));
  if (status != status_fine) {
    TokenAnswer refused = refusal_in(*answer);
    if (refused.refusal.empty())
      return failed("the issuer answers with HTTP status " + std::to_string(status));
    return refused;
  }
  TokenAnswer given{text_of(*answer, "id_token"), "", ""};
  if (given.id_token.empty())
    return failed("the issuer has sent no token that tells who you are (id_token)")
        .remedy("the scopes of the login have to name openid");
  if (given.id_token.size() > token_bytes_max) return failed("the issuer has sent a token that is too long");
  return given;
}

Error refused_by_issuer(const TokenAnswer& answer) {
  if (answer.refusal == "access_denied") return failed("the issuer says no: it was not allowed there");
  return failed("the issuer says no: " + answer.refusal +
                (answer.description.empty() ? "" : ": " + answer.description));
}

Form device_form(const Client& client) { return {{"client_id", client.id}, {"scope", client.scopes}}; }

Result<DeviceGrant> read_device_answer(int status, std::string_view body) {
  const auto answer = read_answer(body);
  if (!answer) return Error(answer.error()).within("HTTP status " + std::to_string(status));
  if (status != status_fine) {
    const TokenAnswer refused = refusal_in(*answer);
    if (refused.refusal.empty())
      return failed("the issuer answers with HTTP status " + std::to_string(status));
    return refused_by_issuer(refused);
  }
  DeviceGrant grant;
  grant.device_code = text_of(*answer, "device_code");
  grant.user_code = text_of(*answer, "user_code");
  grant.url = text_of(*answer, "verification_uri");
  grant.whole_url = text_of(*answer, "verification_uri_complete");
  if (grant.device_code.empty() || grant.device_code.size() > code_bytes_max)
    return failed("the issuer has sent no code for this program");
  const bool is_code = !grant.user_code.empty() && grant.user_code.size() <= user_code_bytes_max &&
                       is_visible_line(grant.user_code);
  if (!is_code) return failed("the issuer has sent no code that can be typed in");
  for (const std::string* url : {&grant.url, &grant.whole_url}) {
    if (url == &grant.whole_url && url->empty()) continue;
    if (auto fine = parse_url(*url); !fine)
      return failed(fine.error().message()).within("the page that the issuer sends you to");
  }
  auto lifetime = span_in(*answer, "expires_in", device_time_max, device_time_max);
  if (!lifetime) return std::move(lifetime).error();
  auto interval = span_in(*answer, "interval", device_interval_default, device_interval_max);
  if (!interval) return std::move(interval).error();
  grant.lifetime = *lifetime;
  grant.interval = std::max<Duration>(*interval, 1s);
  return grant;
}

Form device_token_form(const Client& client, const DeviceGrant& grant) {
  return {{"grant_type", "urn:ietf:params:oauth:grant-type:device_code"},
          {"device_code", grant.device_code},
          {"client_id", client.id}};
}

Result<std::optional<std::string>> DeviceWait::heard(const TokenAnswer& answer, Instant now) {
  if (!answer.id_token.empty()) return std::optional<std::string>(answer.id_token);
  if (answer.refusal == "expired_token") return device_code_expired();
  if (answer.refusal == "slow_down") {
    interval_ = std::min(interval_ + device_slow_down, device_interval_max);
  } else if (answer.refusal != "authorization_pending") {
    return refused_by_issuer(answer);
  }
  next_at_ = now + interval_;
  return std::optional<std::string>();
}

void DeviceWait::unheard(Instant now) {
  interval_ = std::min(interval_ * 2, device_interval_max);
  next_at_ = now + interval_;
}

Error device_code_expired() {
  return failed("the code was not typed in in time").remedy("`tutti login --device` gives you another one");
}

}  // namespace tutti::oidc
