// How a person proves to an issuer who he is, as far as it is words and decisions: with a browser, which
// brings a code back to this machine (authorization code with PKCE), or with a code that he types in
// elsewhere (RFC 8628). Pure but for random letters; time is an argument.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "base/time.hpp"
#include "net/oidc/discovery.hpp"
#include "net/oidc/url.hpp"

namespace tutti::oidc {

struct Client {
  std::string id;
  std::string scopes = "openid profile email";
};

// So many random bytes, as letters of URLs.
Result<std::string> random_letters(std::size_t bytes);
// What stands for a verifier until it is shown itself (PKCE, S256).
std::string challenge_of(const std::string& verifier);

// One login with a browser. Nobody else can bring an answer to it that counts: not to another login's
// question (state), not with another login's token (nonce), not with a code that was read on the way
// (verifier).
struct BrowserLogin {
  std::string redirect_url;
  std::string state;
  std::string nonce;
  std::string verifier;
};

Result<BrowserLogin> begin_browser_login(std::string redirect_url);
// Where the browser is to go.
std::string address_for(const Provider& provider, const Client& client, const BrowserLogin& login);
// The code that the browser has brought back, or why there is none. Nothing: this is no answer to our
// question, and somebody else's business.
std::optional<Result<std::string>> code_from(const std::map<std::string, std::string>& query,
                                             const Provider& provider, const BrowserLogin& login);
Form code_form(const Client& client, const BrowserLogin& login, const std::string& code);

// What the issuer answers to a form: a token, or the word for why not.
struct TokenAnswer {
  std::string id_token;
  std::string refusal;      // such as access_denied; "" where there is a token
  std::string description;  // of the refusal, fit to be shown
};
Result<TokenAnswer> read_token_answer(int status, std::string_view body);
// For people.
Error refused_by_issuer(const TokenAnswer& answer);

constexpr Duration device_interval_default = 5s;
constexpr Duration device_interval_max = 60s;
constexpr Duration device_slow_down = 5s;
constexpr Duration device_time_max = 30min;

struct DeviceGrant {
  std::string device_code;
  std::string user_code;
  std::string url;
  std::string whole_url;  // with the code in it; "" if there is none
  Duration lifetime = device_time_max;
  Duration interval = device_interval_default;
};

Form device_form(const Client& client);
Result<DeviceGrant> read_device_answer(int status, std::string_view body);
Form device_token_form(const Client& client, const DeviceGrant& grant);

// When to ask whether the code was typed in, and what the answer means.
class DeviceWait {
 public:
  DeviceWait(const DeviceGrant& grant, Instant now)
      : ends_at_(now + grant.lifetime), interval_(grant.interval), next_at_(now + interval_) {}

  Instant next_at() const { return next_at_; }
  bool is_over(Instant now) const { return now >= ends_at_; }
  // The token once there is one; nothing as long as it is to be asked again.
  Result<std::optional<std::string>> heard(const TokenAnswer& answer, Instant now);
  // Nobody has answered: later, and then later still.
  void unheard(Instant now);

 private:
  Instant ends_at_;
  Duration interval_;
  Instant next_at_;
};

Error device_code_expired();

}  // namespace tutti::oidc
