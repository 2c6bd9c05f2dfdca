// A server on a thread of its own, with a handler of the test's, and connections to it. For tests.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include <gtest/gtest.h>

#include "net/http/client.hpp"
#include "net/http/server.hpp"

namespace tutti::net {

// A certificate of its own, removed with it. Its subject is localhost, and what it names is as given.
class Certificate {
 public:
  explicit Certificate(const std::string& names = "DNS:localhost") {
    std::string path = (std::filesystem::temp_directory_path() / "tutti-tls-XXXXXX").string();
    folder_ = mkdtemp(path.data());
    const std::string made =
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj "
        "/CN=localhost -addext subjectAltName=" +
        names + " -keyout " + key_file() + " -out " + certificate_file() + " 2>/dev/null";
    EXPECT_EQ(std::system(made.c_str()), 0);
  }
  Certificate(const Certificate&) = delete;
  Certificate& operator=(const Certificate&) = delete;
  ~Certificate() { std::filesystem::remove_all(folder_); }

  std::string key_file() const { return folder_ + "/key.pem"; }
  std::string certificate_file() const { return folder_ + "/certificate.pem"; }

 private:
  std::string folder_;
};

class Net : public testing::Test {
 protected:
  void serve(Server::Handler handler, const ServerOptions& options = {}, Server::Admit admit = nullptr) {
    auto listening = Server::listen(loop_, options, std::move(handler), std::move(admit));
    ASSERT_TRUE(listening.ok()) << listening.error().text();
    server_ = std::move(*listening);
    thread_ = std::thread([this] { loop_.run(); });
  }
  void TearDown() override {
    loop_.stop();
    if (thread_.joinable()) thread_.join();
  }
  Target target() const { return {"127.0.0.1", server_->port(), ""}; }

  // A connection that has sent these bytes.
  int connect_raw(const std::string& bytes, const std::string& from = "127.0.0.1") const {
    const int descriptor = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    EXPECT_EQ(::inet_pton(AF_INET, from.c_str(), &address.sin_addr), 1);
    EXPECT_EQ(::bind(descriptor, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    address.sin_port = htons(server_->port());
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(descriptor, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::send(descriptor, bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
    return descriptor;
  }
  // Reads until this has come, or the other side closes.
  static std::string read_until(int descriptor, const std::string& text) {
    std::string answer;
    char byte = 0;
    while (answer.find(text) == std::string::npos && ::recv(descriptor, &byte, 1, 0) == 1) answer += byte;
    return answer;
  }
  // Reads until the other side closes.
  static std::string read_raw(int descriptor) {
    std::string answer;
    char buffer[4096];
    for (ssize_t got = 0; (got = ::recv(descriptor, buffer, sizeof buffer, 0)) > 0;)
      answer.append(buffer, static_cast<std::size_t>(got));
    ::close(descriptor);
    return answer;
  }
  // Sends raw bytes, and that there are no more, and reads until the other side closes.
  std::string raw(const std::string& bytes, bool ends = true) const {
    const int descriptor = connect_raw(bytes);
    if (ends) ::shutdown(descriptor, SHUT_WR);
    return read_raw(descriptor);
  }

  Loop loop_;
  std::unique_ptr<Server> server_;
  std::thread thread_;
};

}  // namespace tutti::net
