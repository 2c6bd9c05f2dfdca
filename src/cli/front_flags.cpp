#include "cli/front_flags.hpp"

#include "cli/terminal.hpp"
#include "net/http/client.hpp"
#include "serve/server/key.hpp"

namespace tutti::cli {
namespace {

constexpr std::int64_t connections_limit = 65'536;

// "127.0.0.1:8000", "[::1]:8000"; port 0 is taken here.
Result<> set_address(const std::string& listen, serve::FrontSettings& settings) {
  const std::string zero = ":0";
  const bool picks = listen.ends_with(zero);
  const auto target = net::parse_target(picks ? listen.substr(0, listen.size() - 1) + "1" : listen);
  // In the words of who wrote it.
  if (!target) return Error((picks ? net::parse_target(listen) : target).error()).within("--listen");
  settings.address = target->host == "localhost" ? "127.0.0.1" : target->host;
  settings.port = picks ? 0 : target->port;
  return {};
}

}  // namespace

config::Flags::Setter path_into(std::string& target) {
  return [&target](std::string_view text) -> Result<> {
    if (text.empty()) return invalid("is empty").remedy("name a file, or leave it out");
    target = text;
    return {};
  };
}

void FrontFlags::declare(config::Flags& flags) {
  flags.add("listen", listen_, "ADDRESS:PORT; port 0 lets the system pick (default: " + listen_ + ")");
  flags.add("key-file", "TEXT", path_into(key_file_), "only who sends the key in this file may ask");
  flags.add("tls-certificate", "TEXT", path_into(settings_.tls_certificate),
            "serve TLS with this certificate chain (PEM)");
  flags.add("tls-key", "TEXT", path_into(settings_.tls_key), "the certificate's private key (PEM)");
  flags.add("connections", connections_, "at once, half of them from one address (default: 2048)",
            {.min = 1, .max = connections_limit});
  flags.add("drain-time", settings_.drain_time_max,
            "that requests have to end after SIGTERM or Ctrl-C (default: 30s)");
}

Result<> FrontFlags::settle_at(const std::string& address, const std::string& key) {
  if (listen_ != usual_ || !key_file_.empty() || !settings_.tls_certificate.empty())
    return invalid("the cluster says where it listens, and with which key")
        .within("--replica")
        .remedy("leave --listen, --key-file and --tls-certificate out");
  listen_ = (address.find(':') == std::string::npos ? address : "[" + address + "]") + ":0";
  settings_.key = key;
  return {};
}

Result<serve::FrontSettings> FrontFlags::settle() {
  if (auto set = set_address(listen_, settings_); !set) return std::move(set).error();
  if (!key_file_.empty()) {
    auto key = serve::read_own_key(key_file_);
    if (!key) return std::move(key).error();
    settings_.key = std::move(*key);
  }
  settings_.connections_max = static_cast<std::size_t>(connections_);
  return settings_;
}

void FrontFlags::warn_of_plain_text(const serve::FrontSettings& settings) const {
  if (settings.tls_certificate.empty() && !settings.identity && !serve::is_loopback(settings.address))
    print_note("keys and texts cross the network in the clear at " + listen_ +
               "; --tls-certificate and --tls-key encrypt them");
}

std::string FrontFlags::url(const serve::FrontSettings& settings, std::uint16_t port,
                            const std::string& path) {
  const std::string host =
      settings.address.find(':') == std::string::npos ? settings.address : "[" + settings.address + "]";
  const bool is_secure = !settings.tls_certificate.empty() || settings.identity;
  return std::string(is_secure ? "https" : "http") + "://" + host + ":" + std::to_string(port) + path;
}

}  // namespace tutti::cli
