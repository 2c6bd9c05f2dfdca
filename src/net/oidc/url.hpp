// The addresses that an issuer names: https, and plain http on this machine alone. Pure functions: any
// thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace tutti::oidc {

constexpr std::size_t url_bytes_max = 2048;

struct Url {
  bool is_secure = true;
  std::string host;
  std::uint16_t port = 0;
  std::string path;  // with the query; at least "/"
};

// Refuses what would be read by strangers on the way, and what is no plain address: a name before the host, a
// fragment, letters that a terminal or a line of HTTP would take for something else.
Result<Url> parse_url(std::string_view text);

// The same for the issuer itself, which has no query.
Result<Url> parse_issuer(std::string_view text);

// For a query or a form: everything but letters, digits and "-._~" becomes %XX.
std::string percent_encode(std::string_view text);

// "a=1&b=2"
using Form = std::map<std::string, std::string>;
std::string form_text(const Form& form);

// With the form as its query, behind one that it may have.
std::string with_query(const std::string& url, const Form& form);

}  // namespace tutti::oidc
