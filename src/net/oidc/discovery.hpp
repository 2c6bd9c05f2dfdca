// What an issuer says of itself (.well-known/openid-configuration). Pure functions: any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace tutti::oidc {

constexpr std::size_t discovery_bytes_max = 256 << 10;

struct Provider {
  std::string issuer;
  std::string keys_url;
  std::string token_url;
  std::string authorization_url;  // "": nobody logs in there with a browser
  std::string device_url;         // "": nor with a code
};

std::string discovery_url(const std::string& issuer);

// Of this issuer, to the letter: what another one says is not for us.
Result<Provider> parse_discovery(std::string_view text, const std::string& issuer);

}  // namespace tutti::oidc
