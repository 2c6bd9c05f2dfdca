#include "net/oidc/fetch/fetch.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "net/http/client.hpp"

namespace tutti::oidc {
namespace {

// Where distributions keep the authorities that a machine trusts.
constexpr std::array certificate_files{"/etc/ssl/certs/ca-certificates.crt",
                                       "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem",
                                       "/etc/ssl/cert.pem"};
constexpr int page_fine = 200;

std::string known_authorities() {
  const auto found = std::find_if(certificate_files.begin(), certificate_files.end(),
                                  [](const char* file) { return ::access(file, R_OK) == 0; });
  return found == certificate_files.end() ? certificate_files.front() : *found;
}

struct Ask {
  std::string method;
  std::string body = {};
  std::size_t bytes_max = form_answer_bytes_max;
};

Result<Answer> ask(const std::string& text, const Ask& ask, const Reach& reach) {
  const auto url = parse_url(text);
  if (!url) return Error(url.error()).as(ErrorCode::failed);
  net::Target target;
  target.host = url->host;
  target.port = url->port;
  target.who = "issuer";
  if (url->is_secure) target.ca_file = reach.ca_file.empty() ? known_authorities() : reach.ca_file;
  net::Client client(std::move(target), "");
  client.keep_secret();
  if (ask.method == "POST") client.send_as("application/x-www-form-urlencoded");
  if (reach.given_up) client.give_up_when(reach.given_up);
  auto response = client.request(ask.method, url->path, ask.body, fetch_time_max, ask.bytes_max);
  if (response) return Answer{response->status, std::move(response->body)};
  Error error = Error(ErrorCode::failed, response.error().message()).within(response.error().context());
  if (client.is_untrusted()) return std::move(error).remedy(response.error().remedy());
  return std::move(error).remedy("does it answer? `curl -i " + text.substr(0, text.find('?')) + "` tells");
}

}  // namespace

Result<std::string> fetch(const std::string& url, std::size_t bytes_max, const Reach& reach) {
  auto answer = ask(url, {.method = "GET", .bytes_max = bytes_max}, reach);
  if (!answer) return std::move(answer).error();
  if (answer->status == page_fine) return std::move(answer->body);
  const bool sends_on = answer->status / 100 == 3;
  return failed("it answers with HTTP status " + std::to_string(answer->status) +
                (sends_on ? ", which sends us on to another page: that is not followed" : ""))
      .within(url);
}

Result<Answer> post_form(const std::string& url, const Form& form, const Reach& reach) {
  return ask(url, {.method = "POST", .body = form_text(form)}, reach);
}

Result<Provider> discover(const std::string& issuer, const Reach& reach) {
  const std::string url = discovery_url(issuer);
  const auto text = fetch(url, discovery_bytes_max, reach);
  if (!text) return text.error();
  auto provider = parse_discovery(*text, issuer);
  if (!provider) return std::move(provider).error().within(url);
  return provider;
}

Result<KeySet> fetch_keys(const Provider& provider, const Reach& reach) {
  const auto text = fetch(provider.keys_url, jwks_bytes_max, reach);
  if (!text) return text.error();
  auto keys = parse_jwks(*text);
  if (!keys) return std::move(keys).error().within(provider.keys_url);
  return keys;
}

}  // namespace tutti::oidc
