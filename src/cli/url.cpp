#include "cli/url.hpp"

#include <algorithm>

namespace tutti::cli {
namespace {

constexpr const char* system_certificates = "/etc/ssl/certs/ca-certificates.crt";

std::string prefix_of(std::string path) {
  const auto cut_slashes = [&] {
    while (path.ends_with('/')) path.pop_back();
  };
  cut_slashes();
  if (path.ends_with("/v1")) path.resize(path.size() - 3);
  cut_slashes();
  return path;
}

// What can stand in the first line of a request as it is.
bool is_path(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char letter) {
    return letter > ' ' && letter <= '~' && letter != '?' && letter != '#';
  });
}

}  // namespace

bool is_url(const std::string& text) { return text.starts_with("http://") || text.starts_with("https://"); }

Result<net::Target> parse_url(const std::string& url, const std::string& ca_file) {
  if (!is_url(url))
    return invalid("'" + url.substr(0, 128) + "' is no URL").remedy("http://HOST:PORT[/PATH]");
  const bool is_secure = url.starts_with("https://");
  std::string rest = url.substr(url.find("//") + 2);
  std::string prefix;
  if (const auto slash = rest.find('/'); slash != std::string::npos) {
    prefix = prefix_of(rest.substr(slash));
    rest.resize(slash);
  }
  if (!is_path(prefix))
    return invalid("'" + url.substr(0, 128) + "' has more than a path behind its host")
        .remedy("http://HOST:PORT[/PATH]");
  if (rest.find(':') == std::string::npos) rest += is_secure ? ":443" : ":80";
  auto target = net::parse_target(rest);
  if (!target) return std::move(target).error().within(url);
  target->who = "server";
  target->prefix = std::move(prefix);
  if (is_secure) target->ca_file = ca_file.empty() ? system_certificates : ca_file;
  return target;
}

}  // namespace tutti::cli
