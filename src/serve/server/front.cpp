#include "serve/server/front.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cctype>
#include <string_view>

#include "base/check.hpp"
#include "base/files/open_files.hpp"
#include "serve/server/key.hpp"

namespace tutti::serve {
namespace {

// For those whose answers were cancelled to hear it.
constexpr Duration last_words_time_max = 2s;

constexpr const char* host_header = "host";
constexpr const char* origin_header = "origin";

// "localhost", "127.0.0.1:8000", "[::1]:8000": by what it is, because a name may begin with any number.
bool names_loopback(std::string_view authority) {
  std::string host(authority.substr(0, authority.rfind(':')));
  if (authority.starts_with('[')) host = authority.substr(1, authority.find(']') - 1);
  std::transform(host.begin(), host.end(), host.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  in_addr four{};
  if (inet_pton(AF_INET, host.c_str(), &four) == 1) return ntohl(four.s_addr) >> 24U == IN_LOOPBACKNET;
  in6_addr six{};
  if (inet_pton(AF_INET6, host.c_str(), &six) == 1) return IN6_IS_ADDR_LOOPBACK(&six) != 0;
  return host == "localhost";
}

}  // namespace

bool is_loopback(const std::string& address) { return address.starts_with("127.") || address == "::1"; }

Result<> check_files() {
  const files::OpenFiles files = files::raise_open_files();
  if (files::can_open(files_min)) return {};
  return failed("this process may have " + std::to_string(files.most) + " files open, and cannot open the " +
                std::to_string(files_min) + " more that it needs")
      .remedy("`ulimit -n 1024` before it starts; each connection is one, too");
}

Error not_ready(bool draining) {
  return draining ? failed("this engine is about to stop").remedy("ask another one")
                  : failed("the model is being loaded").remedy("ask again in a moment");
}

// Who is no browser may leave out both.
bool is_of_another_page(const net::Request& head) {
  const auto host = head.headers.find(host_header);
  if (host != head.headers.end() && !names_loopback(host->second)) return true;
  const auto origin = head.headers.find(origin_header);
  if (origin == head.headers.end()) return false;
  const std::size_t scheme = origin->second.find("://");
  return scheme == std::string::npos || !names_loopback(std::string_view(origin->second).substr(scheme + 3));
}

Front::Front(const FrontSettings& settings, Pages& pages, std::vector<std::string> headers)
    : settings_(settings), pages_(pages), headers_(std::move(headers)) {
  if (settings_.names_askers) headers_.emplace_back(asker_header);
  headers_.emplace_back(host_header);
  headers_.emplace_back(origin_header);
}

Result<> Front::listen() {
  if (settings_.tls_certificate.empty() != settings_.tls_key.empty())
    return invalid("a certificate and its key go together")
        .remedy("give both --tls-certificate and --tls-key");
  if (settings_.key.empty() && !settings_.takes_key && !is_loopback(settings_.address))
    return invalid("everybody who reaches " + settings_.address + " could use this model")
        .remedy("--key-file names a file with a key, or listen at 127.0.0.1");
  const std::size_t connections =
      std::min(settings_.connections_max, files::files_to_give(files::raise_open_files().most));
  auto listening = net::Server::listen(
      loop_,
      {.address = settings_.address,
       .port = settings_.port,
       .certificate_file = settings_.tls_certificate,
       .key_file = settings_.tls_key,
       .identity = settings_.identity,
       .connections = connections,
       // Many may ask through one gateway, and others find room beside it.
       .connections_per_address = std::max<std::size_t>(connections / 2, 1),
       .bodies_bytes = bodies_bytes_max,
       .bodies_bytes_per_address = bodies_bytes_max / 4 * 3,
       .stalled_time = settings_.stalled_time,
       .headers = headers_},
      [this](std::shared_ptr<net::Exchange> exchange) { handle(std::move(exchange)); },
      [this](const net::Request& head) { return admit(head); });
  if (!listening) return std::move(listening).error();
  http_ = std::move(*listening);
  return {};
}

std::string Front::asker(const net::Request& request) const {
  const auto named = request.headers.find(asker_header);
  if (!settings_.names_askers || named == request.headers.end() || named->second.empty())
    return request.remote;
  return named->second.substr(0, asker_bytes_max);
}

bool Front::may_ask(const std::string& key) const {
  if (settings_.key.empty() && !settings_.takes_key) return true;
  if (!settings_.key.empty() && is_same_key(settings_.key, key)) return true;
  return settings_.takes_key && settings_.takes_key(key);
}

net::Admission Front::admit(const net::Request& head) {
  const FoundPages found = find_page(pages_.rows(), head.parts);
  // Whoever looks at a page of somebody's is on this machine, and the page is not.
  if (settings_.key.empty() && !settings_.takes_key && is_of_another_page(head)) {
    return {
        .refusal = pages_.refusal(
            403,
            invalid("without a key only programs of this machine are answered, and no pages of others")
                .remedy("ask at 127.0.0.1 or localhost, or start this with --key-file and send the key"))};
  }
  const bool known = may_ask(head.bearer);
  if (!known && found.needs_key()) {
    return {
        .refusal = pages_.refusal(
            401, invalid("the key is missing or wrong").remedy("send it as 'Authorization: Bearer KEY'"))};
  }
  // Whatever it brings along: that it is asked in vain is what its client must hear.
  if (found.rows.empty())
    return {.refusal = pages_.refusal(404, invalid("there is no " + head.path.substr(0, 256))),
            .known = known};
  const Page* const page = found.page(head.method);
  if (page == nullptr) {
    auto refusal = pages_.refusal(405, invalid("this is asked with " + found.methods()));
    refusal.allow = found.methods();
    return {.refusal = std::move(refusal), .known = known};
  }
  if (head.body_bytes > page->body_bytes_max)
    return {.refusal = pages_.refusal(413, invalid("the request is too large")), .known = known};
  return {.refusal = std::nullopt, .known = known, .body_bytes_max = page->body_bytes_max};
}

void Front::handle(std::shared_ptr<net::Exchange> exchange) {
  const net::Request& request = exchange->request();
  FoundPages found = find_page(pages_.rows(), request.parts);
  const Page* const page = found.page(request.method);
  TUTTI_CHECK(page != nullptr, "it was admitted");
  page->handle(pages_, {std::move(exchange), std::move(found.arguments)});
}

void Front::drain_when_asked() {
  signals_ = loop_.when_asked_to_end([this](int signal) {
    if (!is_draining_) return drain();
    cut_short_by_ = signal;
    loop_.stop();
  });
}

void Front::drain() {
  if (is_draining_) return;
  is_draining_ = true;
  stop_if_drained();
  drain_timer_ = loop_.after(settings_.drain_time_max, [this] {
    pages_.cancel_all();
    drain_timer_ = loop_.after(last_words_time_max, [this] { loop_.stop(); });
  });
}

void Front::stop_if_drained() {
  if (is_draining_ && pages_.is_idle()) loop_.stop();
}

}  // namespace tutti::serve
