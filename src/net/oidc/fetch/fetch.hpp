// Asks an issuer, over HTTPS with its certificate verified: bounded in bytes and time, and wherever it sends
// us on to we do not go. Blocks; any thread.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "base/result.hpp"
#include "base/time.hpp"
#include "net/oidc/discovery.hpp"
#include "net/oidc/jwks.hpp"
#include "net/oidc/url.hpp"

namespace tutti::oidc {

constexpr Duration fetch_time_max = 10s;  // from the open connection to the whole answer
constexpr std::size_t form_answer_bytes_max = 256 << 10;

struct Reach {
  std::string ca_file;                       // "": the authorities that this machine knows
  std::function<bool()> given_up = nullptr;  // asked several times a second: whether nobody waits any more
};

struct Answer {
  int status = 0;
  std::string body;
};

// Any answer but 200 is an error.
Result<std::string> fetch(const std::string& url, std::size_t bytes_max, const Reach& reach);
// Of a form the other side's refusal is an answer, too.
Result<Answer> post_form(const std::string& url, const Form& form, const Reach& reach);

Result<Provider> discover(const std::string& issuer, const Reach& reach);
Result<KeySet> fetch_keys(const Provider& provider, const Reach& reach);

}  // namespace tutti::oidc
