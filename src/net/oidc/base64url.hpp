// Base64 as URLs and tokens have it (RFC 4648, 5), without padding. One text for the same bytes: whatever
// else would decode to them is refused. Pure functions: any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tutti::oidc {

std::string to_base64url(std::string_view bytes);
// Nothing if it is not such a text.
std::optional<std::string> from_base64url(std::string_view text);

}  // namespace tutti::oidc
