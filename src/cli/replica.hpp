// An engine that the cluster has started as a replica of a service: where it listens and with which key, and
// how it says that it can be asked. It says so once it has answered a request of its own as others ask it,
// and takes it back while its own page says that it cannot be asked. find() and begin() are for one thread.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/result.hpp"
#include "base/time.hpp"
#include "net/http/client.hpp"
#include "net/http/server.hpp"

namespace tutti::cli {

// How often it looks at itself.
inline constexpr Duration replica_look_every = 200ms;
// For the first request, which may wait until all that a model puts off is done.
inline constexpr Duration replica_first_time_max = 10min;

class Replica {
 public:
  // By the variables that its rank has. Refuses whoever is no rank.
  static Result<std::unique_ptr<Replica>> find();
  ~Replica();
  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;

  const std::string& address() const { return own_.host; }
  const std::string& key() const { return key_; }  // "": none
  // What it shows over TLS, where others reach it over a network: by its key they know it. Nothing: on this
  // machine there is none.
  const std::optional<net::ServerIdentity>& identity() const { return identity_; }

  // It listens at this port, and its model is loaded: asks for this, with a body unless that is empty, and
  // says that it is ready if that is answered.
  Result<> begin(std::uint16_t port, const std::string& path, const std::string& body);

 private:
  class Watch;
  Replica(net::Target own, std::string key, std::string file);
  Result<> make_identity();

  net::Target own_;
  const std::string key_;
  const std::string file_;
  std::optional<net::ServerIdentity> identity_;
  std::unique_ptr<Watch> watch_;
};

}  // namespace tutti::cli
