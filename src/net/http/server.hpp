// The one port of a controller: HTTP and WebSocket, over TLS where a certificate is given.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "net/http/http.hpp"
#include "net/http/loop.hpp"

namespace tutti::net {

// What a server shows over TLS, and what it asks for, as text (PEM).
struct ServerIdentity {
  std::string certificates;        // its own, and those above it
  std::string key;                 // of the first of them
  std::string client_authorities;  // whose certificates a client may show; "": none is asked for
  // Shown in place of these to whoever wants those of the cluster (Target::wants_cluster); "": nothing.
  std::string cluster_certificates = {};
  std::string cluster_key = {};
};

struct ServerOptions {
  std::string address = "127.0.0.1";
  std::uint16_t port = 0;  // 0: the system picks one
  std::string certificate_file;
  std::string key_file;                                   // both or none
  std::optional<ServerIdentity> identity = std::nullopt;  // in place of files
  // Beyond these a connection is closed as soon as it is there.
  std::size_t connections = connections_max;
  std::size_t connections_per_address = connections_per_address_max;
  // Of those who have shown no token; the oldest of them makes room for a new one.
  std::size_t unknown_connections = unknown_connections_max;
  std::size_t unknown_connections_per_address = unknown_connections_per_address_max;
  Duration unknown_time = unknown_time_max;  // also of a WebSocket, until it is told to be known
  std::size_t backlogs_bytes = backlogs_bytes_max;
  std::size_t bodies_bytes = bodies_bytes_max;
  std::size_t bodies_bytes_per_address = bodies_bytes_per_address_max;
  std::size_t messages_bytes = messages_bytes_max;
  std::size_t messages_bytes_per_address = messages_bytes_per_address_max;
  std::size_t unknown_messages_bytes = unknown_messages_bytes_max;
  std::size_t unknown_messages_bytes_per_address = unknown_messages_bytes_per_address_max;
  Duration message_time = message_time_max;
  // A stream whose reader takes nothing of a write for so long is cut. Nothing: whoever pauses is waited for.
  // A whole answer is cut, too, when no part of it (progress.hpp) is taken for so long, or for
  // request_time_max.
  std::optional<Duration> stalled_time = std::nullopt;
  Rate frames = frame_rate_max;           // of one WebSocket; a faster one is read more slowly
  std::vector<std::string> headers = {};  // that the handler wants to see, in lower case
  // The cluster that every answer names; null: none does. On the loop.
  std::function<std::string()> cluster = nullptr;
  // Told who was too slow, and how many bytes waited for it. On the loop.
  std::function<void(const std::string& remote, std::size_t bytes)> on_let_go = nullptr;
  // Told why nobody can come in, such as that there are no descriptors left; now and then. On the loop.
  std::function<void(const std::string& why)> on_shut = nullptr;
  // Told whose body was given up while it came, because there was no room for it. On the loop.
  std::function<void(const std::string& remote)> on_crowded = nullptr;
  // Told whose connection had to end although neither side wanted that, and why: there was no memory for it.
  // On the loop.
  std::function<void(const std::string& remote, const std::string& why)> on_lost = nullptr;
};

// Where no more than `most` connections can be: nobody has all of them, and no address.
inline void limit_connections(ServerOptions& options, std::size_t most) {
  options.connections = std::min(options.connections, most);
  const auto part = [&](std::size_t& limit, std::size_t of) {
    limit = std::min(limit, std::max<std::size_t>(options.connections / of, 1));
  };
  part(options.connections_per_address, 2);
  part(options.unknown_connections, 2);
  part(options.unknown_connections_per_address, 4);
}

// What becomes of a request, by its head alone.
struct Admission {
  std::optional<Response> refusal;  // nothing of the body is read then
  bool known = false;               // its sender has shown a token
  std::size_t body_bytes_max = net::body_bytes_max;
};

// It ends on its loop's thread, or when the loop does not run. Nobody comes in any more then; connections
// that are open live on with the loop, and with them the handler.
class Server {
 public:
  // Both run on the loop and must not block. `admit` sees a request without its body, and may be
  // null: then everybody is known.
  using Handler = std::function<void(std::shared_ptr<Exchange>)>;
  using Admit = std::function<Admission(const Request& head)>;
  static Result<std::unique_ptr<Server>> listen(Loop& loop, const ServerOptions& options, Handler handler,
                                                Admit admit = nullptr);

  virtual ~Server() = default;
  virtual std::uint16_t port() const = 0;
  // From now on, for those who connect; of what cannot be used nothing changes. On the loop.
  virtual Result<> use(const ServerIdentity& identity) = 0;

 protected:
  Server() = default;
};

}  // namespace tutti::net
