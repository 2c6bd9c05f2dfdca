#include "net/oidc/fake/fake_issuer.hpp"

#include <utility>

#include "base/check.hpp"

namespace tutti::oidc {

FakeIssuer::FakeIssuer(const std::string& certificate_file, const std::string& key_file) {
  net::ServerOptions options;
  options.certificate_file = certificate_file;
  options.key_file = key_file;
  options.headers = {"content-type"};
  auto listening =
      net::Server::listen(loop_, options, [this](const std::shared_ptr<net::Exchange>& exchange) {
        exchange->answer(answer_to(exchange->request()));
      });
  TUTTI_CHECK(listening.ok());
  server_ = std::move(*listening);
  const std::string port = std::to_string(server_->port());
  url_ = certificate_file.empty() ? "http://127.0.0.1:" + port : "https://localhost:" + port;
  say("/.well-known/openid-configuration", discovery());
  thread_ = std::thread([this] { loop_.run(); });
}

FakeIssuer::~FakeIssuer() {
  loop_.stop();
  thread_.join();
}

std::string FakeIssuer::discovery() const {
  std::string text = R"({"issuer":")" + url_ + R"(","code_challenge_methods_supported":["S256"])";
  for (const auto& [name, path] : {std::pair{"jwks_uri", "/keys"},
                                   {"token_endpoint", "/token"},
                                   {"authorization_endpoint", "/authorize"},
                                   {"device_authorization_endpoint", "/device"}})
    text += std::string(",\"") + name + "\":\"" + url_ + path + '"';
  return text + '}';
}

void FakeIssuer::on(const std::string& path, Page page) {
  const std::lock_guard lock(mutex_);
  pages_[path] = std::move(page);
}

void FakeIssuer::say(const std::string& path, const std::string& text, int status) {
  on(path, [text, status](const net::Request&) { return net::Response{.status = status, .body = text}; });
}

int FakeIssuer::asked(const std::string& path) {
  const std::lock_guard lock(mutex_);
  return asked_[path];
}

net::Response FakeIssuer::answer_to(const net::Request& request) {
  Page page;
  {
    const std::lock_guard lock(mutex_);
    ++asked_[request.path];
    page = pages_[request.path];
  }
  return page ? page(request) : net::Response{.status = 404, .body = "{}"};
}

}  // namespace tutti::oidc
