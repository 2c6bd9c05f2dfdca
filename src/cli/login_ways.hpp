// The two ways in which a person shows an issuer who he is: with a browser on this machine, or with a code
// that he types in elsewhere. Each ends with the issuer's token, within its time or when `interrupted` says
// so. Used by the main thread only.
#pragma once

#include <string>

#include "base/result.hpp"
#include "net/oidc/fetch/fetch.hpp"
#include "net/oidc/flow.hpp"

namespace tutti::cli {

constexpr Duration browser_login_time_max = 5min;

// Whom to ask, as whom, and how.
struct LoginPlace {
  oidc::Provider provider;
  oidc::Client client;
  oidc::Reach reach;
};

struct IssuedToken {
  std::string id_token;
  std::string nonce;  // that has to stand in it; "": none was sent
};

// Whether a browser can be shown to whoever runs this.
bool has_display();

// Waits on a port of this machine for what the browser brings back.
Result<IssuedToken> log_in_with_browser(const LoginPlace& place);
Result<IssuedToken> log_in_with_code(const LoginPlace& place);

// What was asked of nobody any more.
Error login_interrupted();

}  // namespace tutti::cli
