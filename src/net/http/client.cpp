// A blocking client needs no event loop: a socket with deadlines, OpenSSL over it where asked for, and
// Beast's parser.
#include "net/http/client.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <utility>

#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>

#include "base/units.hpp"
#include "net/http/event_splitter.hpp"
#include "net/http/retry_after.hpp"
#include "net/http/trust.hpp"

namespace tutti::net {
namespace {

namespace beast = boost::beast;
namespace http = beast::http;
using Clock = std::chrono::steady_clock;

constexpr Duration connect_time_max = 10s;
constexpr std::size_t refusal_bytes_max = 1 << 20;  // where events are asked for

Error unreachable(const Target& target, const std::string& why) {
  return failed(why).within(target.who + " " + target.text());
}

// Before a whole answer came. One that has begun to answer on this connection speaks as it is spoken to; of
// any other that is not known.
Error broken(const Target& target, bool understood, const std::string& why) {
  const std::string likely = "it may have been restarted, or is crowded: try again";
  return unreachable(target, why).remedy(understood ? likely : likely + "; " + tls_hint(target));
}
Error broken(const Target& target, bool understood, const Error& why) {
  if (why.code() == ErrorCode::forbidden && !target.certificate_file.empty())
    return unwanted(target, why.message()).within(target.who + " " + target.text()).as(why.code());
  if (why.remedy().empty()) return broken(target, understood, why.message());
  return unreachable(target, why.message()).remedy(why.remedy());
}

Error too_long(std::size_t bytes_max) {
  return failed("its answer is longer than " + format_bytes(Bytes(static_cast<std::int64_t>(bytes_max))))
      .remedy("what answers there sends more than it was asked for; is it the server that is meant?");
}

std::string why_errno() { return failed_errno("", errno).message().substr(2); }

// Whether it was we or they who wrote last makes two errors of one thing.
std::string why_closed() {
  return errno == EPIPE || errno == ECONNRESET ? "it closed the connection" : why_errno();
}

// Waits until the descriptor is ready. False when the time is over or `idle` gives up.
bool wait_for(int descriptor, short events, Clock::time_point deadline, const std::function<bool()>& idle) {
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0 && deadline != Clock::time_point::max()) return false;
    const bool slices = idle != nullptr || left > 100'000'000;
    pollfd poll_one{descriptor, events, 0};
    const int ready = ::poll(&poll_one, 1, slices ? 100 : static_cast<int>(left) + 1);
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
    if (idle != nullptr && !idle()) return false;
  }
}

// OpenSSL writes to its socket as to any file: where nobody reads there any more, that is a signal that would
// end the process. What else would get one here, such as standard output in a pipe, still does.
class WithoutPipeSignal {
 public:
  WithoutPipeSignal() {
    ::sigemptyset(&pipe_);
    ::sigaddset(&pipe_, SIGPIPE);
    sigset_t pending{};
    ::sigpending(&pending);
    was_pending_ = ::sigismember(&pending, SIGPIPE) == 1;
    ::pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  WithoutPipeSignal(const WithoutPipeSignal&) = delete;
  WithoutPipeSignal& operator=(const WithoutPipeSignal&) = delete;
  ~WithoutPipeSignal() {
    const int error = errno;  // of what was done
    const timespec at_once{};
    if (!was_pending_) ::sigtimedwait(&pipe_, nullptr, &at_once);
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    errno = error;
  }

 private:
  sigset_t pipe_{};
  sigset_t before_{};
  bool was_pending_ = false;
};

// Whether all of these are addresses of this machine itself.
bool all_here(const addrinfo* addresses) {
  for (const addrinfo* at = addresses; at != nullptr; at = at->ai_next) {
    if (at->ai_family == AF_INET) {
      const auto* address = reinterpret_cast<const sockaddr_in*>(at->ai_addr);
      if (ntohl(address->sin_addr.s_addr) >> 24 != 127) return false;
    } else if (at->ai_family == AF_INET6) {
      const auto* address = reinterpret_cast<const sockaddr_in6*>(at->ai_addr);
      if (!IN6_IS_ADDR_LOOPBACK(&address->sin6_addr)) return false;
    }
  }
  return true;
}

}  // namespace

Result<Target> parse_target(std::string_view text) {
  const auto colon = text.rfind(':');
  const Error wrong = invalid("'" + std::string(text.substr(0, 128)) + "' is not an address")
                          .remedy("write HOST:PORT, such as 127.0.0.1:7070");
  if (colon == std::string_view::npos || colon == 0) return wrong;
  Target target;
  target.host = text.substr(0, colon);
  if (target.host.front() == '[' && target.host.back() == ']')
    target.host = target.host.substr(1, target.host.size() - 2);
  const std::string_view port = text.substr(colon + 1);
  const auto parsed = std::from_chars(port.data(), port.data() + port.size(), target.port);
  if (parsed.ec != std::errc() || parsed.ptr != port.data() + port.size() || target.port == 0) return wrong;
  return target;
}

std::string tls_hint(const Target& target) {
  return !target.is_secure()
             ? "if it speaks TLS, TUTTI_CA_FILE (or --ca-file) must name its certificate authority"
             : "if it does not speak TLS, TUTTI_CA_FILE (or --ca-file) must not be set";
}

Error in_the_clear() {
  return invalid("the token would cross the network in the clear")
      .remedy(
          "TUTTI_CA_FILE (or --ca-file of an agent) names the certificate authority of a controller that "
          "speaks TLS; without TLS only a controller on this machine is spoken to");
}

Result<> check_secrecy(const Target& target) {
  if (target.is_secure()) return {};
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(target.host.c_str(), nullptr, &hints, &found) != 0) return {};
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> addresses(found, ::freeaddrinfo);
  if (all_here(found)) return {};
  return in_the_clear().within(target.who + " " + target.text());
}

// An open connection; every call is bounded by `deadline`.
struct Client::Connection {
  int descriptor = -1;
  SSL_CTX* tls_context = nullptr;
  SSL* tls = nullptr;
  Clock::time_point deadline = Clock::time_point::max();
  std::function<bool()> idle;
  std::string unread;       // of the next answer
  bool understood = false;  // an answer has begun
  bool is_untrusted = false;

  Connection() = default;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection() {
    SSL_free(tls);
    SSL_CTX_free(tls_context);
    if (descriptor >= 0) ::close(descriptor);
  }

  // `secret`: what will be sent is for nobody on the way.
  Result<> open(const Target& target, bool secret);
  Result<> open_tls(const Target& target);
  // Whoever it is.
  Result<> open_to_anybody(const Target& target);
  Result<> send(std::string_view bytes);
  // At least one byte, nothing at the end of the stream.
  Result<std::string> receive();

 private:
  Result<> connect_to(const Target& target, bool secret);
  Result<> connect_to(const addrinfo& address);
  Result<> shake_hands(const Target& target);
  // What a call of OpenSSL's waits for. False: an error.
  bool wait_tls(int result) {
    const int need = SSL_get_error(tls, result);
    if (need == SSL_ERROR_WANT_READ) return wait_for(descriptor, POLLIN, deadline, idle);
    if (need == SSL_ERROR_WANT_WRITE) return wait_for(descriptor, POLLOUT, deadline, idle);
    return false;
  }
};

Result<> Client::Connection::connect_to(const addrinfo& address) {
  if (descriptor >= 0) ::close(descriptor);
  descriptor = ::socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return failed(why_errno());
  const int on = 1;
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (::connect(descriptor, address.ai_addr, address.ai_addrlen) == 0) return {};
  if (errno != EINPROGRESS) return failed(why_errno());
  if (!wait_for(descriptor, POLLOUT, deadline, idle)) return failed("no answer");
  int failure = 0;
  socklen_t size = sizeof failure;
  ::getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &failure, &size);
  errno = failure;
  return failure == 0 ? Result<>() : failed(why_errno());
}

Result<> Client::Connection::connect_to(const Target& target, bool secret) {
  deadline = Clock::now() + connect_time_max;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int unresolved =
      ::getaddrinfo(target.host.c_str(), std::to_string(target.port).c_str(), &hints, &found);
  if (unresolved != 0) return failed(::gai_strerror(unresolved));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> addresses(found, ::freeaddrinfo);
  if (secret && !target.is_secure() && !all_here(found)) return in_the_clear();
  Result<> connected = failed("it has no address");
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    connected = connect_to(*at);
    if (connected) break;
  }
  return connected;
}

Result<> Client::Connection::open(const Target& target, bool secret) {
  auto connected = connect_to(target, secret);
  if (!connected || !target.is_secure()) return connected;
  return open_tls(target);
}

Result<> Client::Connection::open_to_anybody(const Target& target) {
  if (auto connected = connect_to(target, false); !connected) return connected;
  tls_context = SSL_CTX_new(TLS_client_method());
  SSL_CTX_set_verify(tls_context, SSL_VERIFY_NONE, nullptr);
  return shake_hands(target);
}

Result<> Client::Connection::open_tls(const Target& target) {
  // What OpenSSL holds goes with the process: to give it back piece by piece takes a command longer than the
  // handshake's signatures do. Only who asks first is heard.
  OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr);
  tls_context = SSL_CTX_new(TLS_client_method());
  SSL_CTX_set_verify(tls_context, SSL_VERIFY_PEER, nullptr);
  if (auto trusted = trust_authority(tls_context, target); !trusted) return trusted;
  if (auto shown = show_certificate(tls_context, target); !shown) return shown;
  return shake_hands(target);
}

Result<> Client::Connection::shake_hands(const Target& target) {
  if (target.wants_cluster) {
    if (auto wants = want_cluster(tls_context); !wants) return wants;
  }
  tls = SSL_new(tls_context);
  SSL_set_fd(tls, descriptor);
  expect_host(tls, target.host);
  for (;;) {
    const int done = [&] {
      const WithoutPipeSignal quiet;
      return SSL_connect(tls);
    }();
    if (done == 1) return {};
    if (wait_tls(done)) continue;
    if (Clock::now() >= deadline) return failed("no answer in time");
    const long verdict = SSL_get_verify_result(tls);
    is_untrusted = verdict != X509_V_OK;
    return is_untrusted ? untrusted(target, verdict) : failed("the TLS handshake failed");
  }
}

Result<> Client::Connection::send(std::string_view bytes) {
  while (!bytes.empty()) {
    ssize_t sent = 0;
    if (tls != nullptr) {
      const WithoutPipeSignal quiet;
      sent = SSL_write(tls, bytes.data(), static_cast<int>(std::min<std::size_t>(bytes.size(), 1 << 20)));
      if (sent <= 0 && wait_tls(static_cast<int>(sent))) continue;
    } else {
      sent = ::send(descriptor, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent < 0 && errno == EAGAIN && wait_for(descriptor, POLLOUT, deadline, idle)) continue;
    }
    if (sent <= 0) return failed(errno == EAGAIN ? "no answer" : why_closed());
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return {};
}

Result<std::string> Client::Connection::receive() {
  std::array<char, 65536> buffer;
  for (;;) {
    ssize_t got = 0;
    if (tls != nullptr) {
      const WithoutPipeSignal quiet;
      ERR_clear_error();
      got = SSL_read(tls, buffer.data(), static_cast<int>(buffer.size()));
      if (got <= 0 && SSL_get_error(tls, static_cast<int>(got)) == SSL_ERROR_ZERO_RETURN)
        return std::string();
      if (got <= 0 && wait_tls(static_cast<int>(got))) continue;
    } else {
      got = ::recv(descriptor, buffer.data(), buffer.size(), 0);
      if (got < 0 && errno == EAGAIN && wait_for(descriptor, POLLIN, deadline, idle)) continue;
    }
    const unsigned long ended = tls != nullptr && got <= 0 ? ERR_peek_last_error() : 0;
    if (ended != 0 && SSL_get_error(tls, static_cast<int>(got)) == SSL_ERROR_SSL) {
      const char* why = ERR_reason_error_string(ended);
      Error told = failed(std::string("it has ended TLS: ") + (why == nullptr ? "it does not say why" : why));
      // Whatever the clocks are, and however often it is asked.
      const bool is_for_good = ERR_GET_REASON(ended) == SSL_R_TLSV1_ALERT_UNKNOWN_CA;
      return is_for_good ? std::move(told).as(ErrorCode::forbidden) : told;
    }
    if (got < 0) return failed(errno == EAGAIN ? "no answer in time" : why_closed());
    return std::string(buffer.data(), static_cast<std::size_t>(got));
  }
}

Result<std::vector<std::string>> shown_certificates(const Target& target) {
  Client::Connection connection;
  if (auto opened = connection.open_to_anybody(target); !opened)
    return unreachable(target, opened.error().text())
        .remedy("is it running, and does it speak TLS? `tutti nodes token` tells where it is");
  std::vector<std::string> all;
  STACK_OF(X509)* chain = SSL_get_peer_cert_chain(connection.tls);  // the connection's
  const int count = std::min(sk_X509_num(chain), static_cast<int>(pki::certificates_max));
  for (int at = 0; at < count; ++at) {
    unsigned char* bytes = nullptr;
    const int size = i2d_X509(sk_X509_value(chain, at), &bytes);
    if (size <= 0) continue;
    auto text = pki::to_pem({reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(size)});
    OPENSSL_free(bytes);
    if (text) all.push_back(std::move(*text));
  }
  return all;
}

Client::Client(Target target, std::string token) : target_(std::move(target)), token_(std::move(token)) {}
Client::Client(Client&&) noexcept = default;
Client& Client::operator=(Client&&) noexcept = default;
Client::~Client() = default;

std::function<bool()> Client::telling_wait() const {
  if (!waits_ && !given_up_) return nullptr;
  return [this] {
    if (waits_) waits_();
    return !given_up_ || !given_up_();
  };
}

Result<> Client::connect() {
  if (connection_) return {};
  auto connection = std::make_unique<Connection>();
  connection->idle = telling_wait();
  auto opened = connection->open(target_, secret_ || !token_.empty());
  is_untrusted_ = connection->is_untrusted;
  if (!opened) {
    if (opened.error().code() == ErrorCode::invalid)
      return std::move(opened).error().within(target_.who + " " + target_.text());
    Error error = unreachable(target_, opened.error().text());
    if (!opened.error().remedy().empty()) return std::move(error).remedy(opened.error().remedy());
    if (target_.who != Target().who) return error;
    return std::move(error).remedy(
        "is it running? `tutti up` starts a local cluster; TUTTI_ADDR names another one");
  }
  connection_ = std::move(connection);
  return {};
}

namespace {

// Who it is for, and who sends it.
struct Envelope {
  const Target& target;
  const std::string& token;
  const std::string& cluster;
  const std::string& type;
};

std::string make_message(const Envelope& envelope, const std::string& method, const std::string& path,
                         const std::string& body) {
  const auto& [target, token, cluster, type] = envelope;
  std::string text = method + " " + target.prefix + path + " HTTP/1.1\r\nHost: " + target.text() +
                     "\r\nUser-Agent: tutti\r\n";
  if (!cluster.empty()) text += std::string(cluster_header) + ": " + cluster + "\r\n";
  if (!token.empty()) text += "Authorization: Bearer " + token + "\r\n";
  const std::string kind = type.empty() && body.starts_with('{') ? "application/json" : type;
  if (!kind.empty()) text += "Content-Type: " + kind + "\r\n";
  return text + "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

// Feeds what arrives to the parser until it is done; `progress` may stop earlier by returning false.
template <class Parser, class Receive>
Result<> parse(Parser& parser, std::size_t bytes_max, std::string& unread, const Receive& receive,
               const std::function<bool()>& progress) {
  beast::error_code failure;
  parser.eager(true);
  while (!parser.is_done()) {
    if (!unread.empty()) {
      const std::size_t used = parser.put(boost::asio::buffer(unread), failure);
      unread.erase(0, used);
      if (failure == http::error::body_limit) return too_long(bytes_max);
      if (failure && failure != http::error::need_more)
        return failed("it does not speak HTTP: " + failure.message());
      if (!progress()) return {};
      if (used > 0) continue;
    }
    if (parser.is_done()) break;
    auto bytes = receive();
    if (!bytes) return std::move(bytes).error();
    if (bytes->empty()) return failed("it closed the connection");
    unread += *bytes;
  }
  return {};
}

std::string_view cluster_of(const http::fields& head) {
  const auto named = head[cluster_header];
  return {named.data(), named.size()};
}

}  // namespace

Result<> Client::recognise(std::string_view cluster) {
  if (cluster.empty() || cluster.size() > cluster_bytes_max) return {};
  if (cluster_.empty()) cluster_ = cluster;
  met_another_ = cluster != cluster_;
  if (!met_another_) return {};
  return invalid("this is cluster " + std::string(cluster) + ", and not " + cluster_ +
                 ", which answered here before")
      .within(target_.who + " " + target_.text())
      .remedy("its store was replaced or made anew: jobs have the same numbers there, and are others");
}

Result<Response> Client::request(const std::string& method, const std::string& path, const std::string& body,
                                 Duration timeout, std::size_t answer_bytes_max) {
  sent_ = false;
  met_another_ = false;
  retry_after_seconds_ = 0;
  if (auto connected = connect(); !connected) return std::move(connected).error();
  Connection& connection = *connection_;
  connection.deadline = Clock::now() + timeout;
  connection.idle = telling_wait();
  sent_ = true;
  const auto sent = connection.send(make_message({target_, token_, cluster_, type_}, method, path, body));
  http::response_parser<http::string_body> parser;
  parser.body_limit(answer_bytes_max);
  parser.skip(method == "HEAD");
  // Also where not all of it could be sent: who refuses a request by its head answers before its end.
  auto done = parse(
      parser, answer_bytes_max, connection.unread, [&] { return connection.receive(); }, [] { return true; });
  if (!done) {
    const bool silent = Clock::now() >= connection.deadline;
    const bool understood = connection.understood || parser.is_header_done();
    connection_.reset();
    // Whoever keeps a connection open and says nothing has not been spoken to in the wrong way.
    if (silent)
      return unreachable(target_, "it has not answered within " +
                                      format_duration(std::chrono::ceil<std::chrono::milliseconds>(timeout)))
          .remedy("it is there, and stopped, stuck or busy: its log may tell; try again in a while");
    if (!sent && done.error().code() != ErrorCode::forbidden) done = sent;
    return broken(target_, understood, done.error());
  }
  connection.understood = true;
  const bool keep = parser.get().keep_alive() && sent;
  auto answer = parser.release();
  if (!keep) connection_.reset();
  if (auto same = recognise(cluster_of(answer)); !same) return std::move(same).error();
  retry_after_seconds_ = retry_after_seconds_of(answer[http::field::retry_after]);
  return Response{.status = static_cast<int>(answer.result_int()),
                  .body = std::move(answer.body()),
                  .type = std::string(answer[http::field::content_type]),
                  .retry_after_seconds = retry_after_seconds_};
}

Result<> Client::events(const std::string& method, const std::string& path, const std::string& body,
                        const OnEvent& on_event, const std::function<bool()>& idle) {
  met_another_ = false;
  retry_after_seconds_ = 0;
  refusal_status_ = 0;
  if (auto connected = connect(); !connected) return std::move(connected).error();
  Connection& connection = *connection_;
  bool given_up = false;
  connection.deadline = Clock::time_point::max();
  connection.idle = [&] { return !(given_up = !idle()); };
  auto done = connection.send(make_message({target_, token_, cluster_, type_}, method, path, body));
  http::response_parser<http::string_body> parser;
  parser.body_limit(boost::none);
  EventSplitter splitter;
  Result<> same;
  Result<bool> goes_on = true;
  if (done) {
    done = parse(
        parser, refusal_bytes_max, connection.unread, [&] { return connection.receive(); },
        [&] {
          if (!parser.is_header_done()) return true;
          if (!(same = recognise(cluster_of(parser.get())))) return false;
          if (parser.get().result_int() != 200) {
            if (parser.get().body().size() > refusal_bytes_max) goes_on = too_long(refusal_bytes_max);
            return goes_on.ok();
          }
          const std::string part = std::move(parser.get().body());
          parser.get().body().clear();
          goes_on = splitter.feed(part, on_event);
          given_up = goes_on && !*goes_on;
          return goes_on && *goes_on;
        });
  }
  const bool understood = connection.understood || parser.is_header_done();
  connection_.reset();  // what is left of a stream is of no use to another request
  if (!same) return same;
  if (given_up) return {};
  if (!goes_on) done = std::move(goes_on).error();
  if (!done) return broken(target_, understood, done.error());
  if (parser.get().result_int() != 200) {
    retry_after_seconds_ = retry_after_seconds_of(parser.get()[http::field::retry_after]);
    refusal_status_ = static_cast<int>(parser.get().result_int());
    return failed(parser.get().body()).within("HTTP " + std::to_string(parser.get().result_int()));
  }
  return {};
}

}  // namespace tutti::net
