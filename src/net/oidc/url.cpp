#include "net/oidc/url.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <cctype>
#include <charconv>

namespace tutti::oidc {
namespace {

constexpr std::uint16_t https_port = 443;
constexpr std::uint16_t http_port = 80;
constexpr std::string_view https = "https://";
constexpr std::string_view http = "http://";

bool is_here(const std::string& host) {
  if (host == "localhost" || host == "::1") return true;
  in_addr address{};
  return ::inet_pton(AF_INET, host.c_str(), &address) == 1 && ntohl(address.s_addr) >> 24U == 127;
}

// What is neither a space nor beyond ASCII, nor has a meaning to a shell's quotes or to HTML.
bool is_url_letter(char letter) {
  return letter > ' ' && letter <= '~' &&
         std::string_view("\"'<>\\^`{|}").find(letter) == std::string_view::npos;
}

bool is_host_letter(char letter) {
  return std::isalnum(static_cast<unsigned char>(letter)) != 0 || letter == '-' || letter == '.' ||
         letter == '_';
}

Error no_url(const char* why) { return invalid(why).remedy("https://HOST[:PORT][/PATH]"); }

Result<> read_host(std::string_view host, Url& url) {
  const bool in_brackets = host.starts_with('[');
  const std::size_t end = in_brackets ? host.find(']') : host.find(':');
  url.host = host.substr(in_brackets ? 1 : 0, in_brackets && end != std::string_view::npos ? end - 1 : end);
  std::string_view rest = end == std::string_view::npos ? "" : host.substr(end);
  if (in_brackets) {
    in6_addr address{};
    if (rest.empty() || ::inet_pton(AF_INET6, url.host.c_str(), &address) != 1)
      return no_url("what stands in its brackets is no address");
    rest.remove_prefix(1);
  } else if (url.host.empty() || !std::all_of(url.host.begin(), url.host.end(), is_host_letter)) {
    return no_url("it has no host that can be called");
  }
  if (rest.empty()) return {};
  const char* last = rest.data() + rest.size();
  const auto parsed = std::from_chars(rest.data() + 1, last, url.port);
  if (rest.front() != ':' || parsed.ec != std::errc() || parsed.ptr != last || url.port == 0)
    return no_url("its port is none");
  return {};
}

}  // namespace

Result<Url> parse_url(std::string_view text) {
  if (text.size() > url_bytes_max) return no_url("it is too long");
  if (!std::all_of(text.begin(), text.end(), is_url_letter))
    return no_url("it has letters that no address has");
  Url url;
  url.is_secure = text.starts_with(https);
  if (!url.is_secure && !text.starts_with(http))
    return no_url("it begins neither with https:// nor with http://");
  text.remove_prefix(url.is_secure ? https.size() : http.size());
  if (text.find('#') != std::string_view::npos) return no_url("it has a fragment (#)");
  const std::size_t slash = std::min(text.find_first_of("/?"), text.size());
  const std::string_view host = text.substr(0, slash);
  if (host.find('@') != std::string_view::npos) return no_url("it has a name before its host");
  url.path = text.substr(slash);
  if (!url.path.starts_with('/')) url.path.insert(0, "/");
  url.port = url.is_secure ? https_port : http_port;
  if (auto read = read_host(host, url); !read) return std::move(read).error();
  if (!url.is_secure && !is_here(url.host))
    return no_url("it is plain http: whoever is on the way could read and change what is said");
  return url;
}

Result<Url> parse_issuer(std::string_view text) {
  auto url = parse_url(text);
  if (url && url->path.find('?') != std::string::npos) return no_url("it has a query (?)");
  return url;
}

std::string percent_encode(std::string_view text) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  std::string encoded;
  for (const char letter : text) {
    const auto byte = static_cast<unsigned char>(letter);
    if (std::isalnum(byte) != 0 || std::string_view("-._~").find(letter) != std::string_view::npos) {
      encoded += letter;
    } else {
      encoded += '%';
      encoded += digits[byte >> 4U];
      encoded += digits[byte & 15U];
    }
  }
  return encoded;
}

std::string form_text(const Form& form) {
  std::string text;
  for (const auto& [name, value] : form)
    text += (text.empty() ? "" : "&") + percent_encode(name) + "=" + percent_encode(value);
  return text;
}

std::string with_query(const std::string& url, const Form& form) {
  return url + (url.find('?') == std::string::npos ? "?" : "&") + form_text(form);
}

}  // namespace tutti::oidc
