#include "cli/url.hpp"

namespace tutti::cli {
namespace {

constexpr const char* system_certificates = "/etc/ssl/certs/ca-certificates.crt";

}  // namespace

bool is_url(const std::string& text) { return text.starts_with("http://") || text.starts_with("https://"); }

Result<net::Target> parse_url(const std::string& url, const std::string& ca_file) {
  if (!is_url(url)) return invalid("'" + url.substr(0, 128) + "' is no URL").remedy("http://HOST:PORT");
  const bool is_secure = url.starts_with("https://");
  std::string rest = url.substr(url.find("//") + 2);
  if (const auto slash = rest.find('/'); slash != std::string::npos) rest.resize(slash);
  if (rest.find(':') == std::string::npos) rest += is_secure ? ":443" : ":80";
  auto target = net::parse_target(rest);
  if (!target) return std::move(target).error().within(url);
  target->who = "server";
  if (is_secure) target->ca_file = ca_file.empty() ? system_certificates : ca_file;
  return target;
}

}  // namespace tutti::cli
