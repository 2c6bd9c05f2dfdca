// A small issuer on a thread of its own, which says whatever a test wants it to. Any thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "net/http/server.hpp"

namespace tutti::oidc {

class FakeIssuer {
 public:
  using Page = std::function<net::Response(const net::Request&)>;

  // With a certificate for localhost it speaks TLS.
  explicit FakeIssuer(const std::string& certificate_file = "", const std::string& key_file = "");
  FakeIssuer(const FakeIssuer&) = delete;
  FakeIssuer& operator=(const FakeIssuer&) = delete;
  ~FakeIssuer();

  const std::string& url() const { return url_; }
  // What it says of itself as long as nobody changes that.
  std::string discovery() const;

  // A page that there is not yet is answered with 404.
  void on(const std::string& path, Page page);
  void say(const std::string& path, const std::string& text, int status = 200);
  void set_keys(const std::string& jwks) { say("/keys", jwks); }
  // How often the page was asked for.
  int asked(const std::string& path);

 private:
  net::Response answer_to(const net::Request& request);

  net::Loop loop_;
  std::unique_ptr<net::Server> server_;
  std::string url_;
  std::mutex mutex_;
  std::map<std::string, Page> pages_;
  std::map<std::string, int> asked_;
  std::thread thread_;
};

}  // namespace tutti::oidc
