// The other end of server.hpp: a blocking client for commands, and a WebSocket for agents.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "net/http/http.hpp"
#include "net/http/loop.hpp"

namespace tutti::net {

struct Target {
  std::string host;
  std::uint16_t port = 0;
  std::string ca_file;             // TLS with this certificate authority; "" for plain HTTP
  std::string who = "controller";  // is spoken to, for messages
  std::string prefix;              // that stands before each path of a request, such as "/proxy"
  // Who calls, where that is asked for over TLS: a certificate chain and its key (PEM); both or none. They
  // are read anew for each connection, unless they were before.
  std::string certificate_file = {};
  std::string key_file = {};
  // The controller is to show the certificate of its cluster's authority, also where it shows people one that
  // somebody else has signed.
  bool wants_cluster = false;
  std::string authority = {};  // the certificate itself (PEM), in place of `ca_file`

  bool is_secure() const { return !ca_file.empty() || !authority.empty(); }
  std::string text() const { return host + ":" + std::to_string(port); }
};

// "HOST:PORT" or "[::1]:PORT".
Result<Target> parse_target(std::string_view text);

// What to look at where the other side does not speak as it is spoken to.
std::string tls_hint(const Target& target);
// Why a token is not sent there.
Error in_the_clear();
// Refuses a way on which a token could be read: without TLS it goes nowhere but to this machine. One that
// cannot be found now is not refused.
Result<> check_secrecy(const Target& target);

// What the other side shows as its certificates over TLS (PEM), its own first. Nobody is trusted for that,
// and nothing is sent.
Result<std::vector<std::string>> shown_certificates(const Target& target);

// One connection, opened at the first request and kept. One thread.
class Client {
 public:
  Client(Target target, std::string token);
  Client(Client&&) noexcept;
  Client& operator=(Client&&) noexcept;
  ~Client();

  // An answer of more bytes is an error: who knows that it is small says so.
  Result<Response> request(const std::string& method, const std::string& path, const std::string& body = {},
                           Duration timeout = answer_time_max,
                           std::size_t answer_bytes_max = net::answer_bytes_max);

  // Called several times a second while a request waits for its answer, or for the connection.
  void on_wait(std::function<void()> tell) { waits_ = std::move(tell); }

  // Asked several times a second while a request waits: what nobody wants any more fails.
  void give_up_when(std::function<bool()> given_up) { given_up_ = std::move(given_up); }
  // What is sent is for nobody on the way, as with a token: without TLS it goes nowhere but to this machine.
  void keep_secret() { secret_ = true; }
  // The kind of the bodies to come; without it they are JSON if they look so.
  void send_as(std::string type) { type_ = std::move(type); }

  // Of a request that failed: the other side may have got it, and may have done it.
  bool may_have_arrived() const { return sent_; }
  // Of a connection that could not be opened: the other side speaks TLS, and its certificate is not trusted.
  bool is_untrusted() const { return is_untrusted_; }
  // Of one that was refused, or of events that were: when to ask again; 0 if it was not said.
  int retry_after_seconds() const { return retry_after_seconds_; }
  // Of events that were refused: the status of the answer; 0: they were not.
  int refusal_status() const { return refusal_status_; }

  // The cluster that is meant: the first that has answered, or that was told. It stands in each request, so
  // that another one does nothing of it. "" until one is known.
  const std::string& cluster() const { return cluster_; }
  void mean(std::string cluster) { cluster_ = std::move(cluster); }
  // Another one has answered the last request, which is an error.
  bool met_another() const { return met_another_; }

  // Server-sent events until the server ends the stream or a callback returns false; one without a name has
  // an empty one. `idle` is called several times a second, also while nothing arrives. An answer that is no
  // stream is an error with its body as the message.
  using OnEvent = std::function<bool(std::string_view event, std::string_view data)>;
  Result<> events(const std::string& path, const OnEvent& on_event, const std::function<bool()>& idle) {
    return events("GET", path, "", on_event, idle);
  }
  Result<> events(const std::string& method, const std::string& path, const std::string& body,
                  const OnEvent& on_event, const std::function<bool()>& idle);

 private:
  struct Connection;
  friend Result<std::vector<std::string>> shown_certificates(const Target& target);
  Result<> connect();
  std::function<bool()> telling_wait() const;
  // By the cluster that an answer names; "": none.
  Result<> recognise(std::string_view cluster);

  Target target_;
  std::string token_;
  bool sent_ = false;
  bool is_untrusted_ = false;
  int retry_after_seconds_ = 0;
  int refusal_status_ = 0;
  std::string cluster_;
  bool met_another_ = false;
  bool secret_ = false;
  std::string type_;
  std::function<void()> waits_;
  std::function<bool()> given_up_;
  std::unique_ptr<Connection> connection_;
};

// Dials a WebSocket. `done` runs on the loop with the open socket or with why there is none, and must set the
// socket's callbacks before it returns. Where it throws before that, or on_close does, it runs again with
// why.
void dial(Loop& loop, const Target& target, const std::string& path, const std::string& token,
          std::function<void(Result<std::shared_ptr<Socket>>)> done);

// What is in the files of a target: reading them may wait for a disk, and a loop must not. Any thread.
class Credentials {
 public:
  static Result<Credentials> read(const Target& target);

 private:
  friend void dial(Loop& loop, const Target& target, const Credentials& credentials, const std::string& path,
                   const std::string& token,
                   const std::function<void(Result<std::shared_ptr<Socket>>)>& done);

  std::shared_ptr<void> tls_;  // null: plain HTTP
};
// With what was read before.
void dial(Loop& loop, const Target& target, const Credentials& credentials, const std::string& path,
          const std::string& token, const std::function<void(Result<std::shared_ptr<Socket>>)>& done);

}  // namespace tutti::net
