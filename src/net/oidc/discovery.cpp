#include "net/oidc/discovery.hpp"

#include <algorithm>

#include "base/json/parse.hpp"
#include "base/visible.hpp"
#include "net/oidc/members.hpp"
#include "net/oidc/url.hpp"

namespace tutti::oidc {
namespace {

constexpr std::size_t discovery_values_max = 8192;
constexpr std::size_t shown_issuer_bytes_max = 128;

// Into `url`; one that may be missing stays empty.
Result<> read_url(const json::Value& settings, const std::string& name, bool needed, std::string& url) {
  const std::string* text = text_in(settings, name);
  if (text == nullptr) return needed ? Result<>(failed("it has no " + name)) : Result<>();
  if (auto fine = parse_url(*text); !fine) return failed(fine.error().message()).within(name);
  url = *text;
  return {};
}

// What it does not say it may be able to do.
bool may_prove_codes(const json::Value& settings) {
  const json::Value* methods = settings.find("code_challenge_methods_supported");
  const json::Array* list = methods == nullptr ? nullptr : methods->list();
  return list == nullptr || std::any_of(list->begin(), list->end(), [](const json::Value& method) {
           return method.text() != nullptr && *method.text() == "S256";
         });
}

}  // namespace

std::string discovery_url(const std::string& issuer) {
  return issuer + (issuer.ends_with('/') ? "" : "/") + ".well-known/openid-configuration";
}

Result<Provider> parse_discovery(std::string_view text, const std::string& issuer) {
  if (text.size() > discovery_bytes_max) return failed("it is too long");
  if (auto fine = json::scan(text, discovery_values_max); !fine)
    return std::move(fine).error().as(ErrorCode::failed);
  const auto settings = json::parse(text);
  if (!settings || settings->object() == nullptr) return failed("it is no object of JSON");
  const std::string* named = text_in(*settings, "issuer");
  if (named == nullptr) return failed("it names no issuer");
  if (*named != issuer)
    return failed("it is of the issuer '" + visible_line(named->substr(0, shown_issuer_bytes_max)) +
                  "', and not of '" + visible_line(issuer) + "'")
        .remedy("write the issuer to the letter as it calls itself, the slash at its end too");
  Provider provider;
  provider.issuer = issuer;
  if (auto read = read_url(*settings, "jwks_uri", true, provider.keys_url); !read)
    return std::move(read).error();
  if (auto read = read_url(*settings, "token_endpoint", true, provider.token_url); !read)
    return std::move(read).error();
  if (auto read = read_url(*settings, "authorization_endpoint", false, provider.authorization_url); !read)
    return std::move(read).error();
  if (auto read = read_url(*settings, "device_authorization_endpoint", false, provider.device_url); !read)
    return std::move(read).error();
  // A code that is not proved to be ours (PKCE) is worth as much to whoever sees it on the way.
  if (!may_prove_codes(*settings)) provider.authorization_url.clear();
  return provider;
}

}  // namespace tutti::oidc
