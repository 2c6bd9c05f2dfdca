// The cluster that a command talks to: found through TUTTI_ADDR and TUTTI_TOKEN_FILE, else in the home of the
// local cluster. Used by the main thread only.
#pragma once

#include <chrono>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "base/result.hpp"
#include "base/time.hpp"
#include "net/http/client.hpp"

namespace tutti::cli {

// Where `tutti up` keeps its cluster: TUTTI_HOME, else ~/.tutti.
std::string home_folder();
// From where one stands.
std::string absolute_path(const std::string& path);

// The name of whoever runs this.
std::string user_name();

// While the controller is away it is asked again this often; a cancelling command waits this long for it.
constexpr auto reconnect_every = std::chrono::milliseconds(200);
constexpr Duration cancel_time_max = 10s;
// After so long without an answer the user is told who is waited for.
constexpr Duration answer_told_after = 3s;
constexpr Duration answer_time_max = 60s;

class Cluster {
 public:
  static Result<Cluster> find();
  // The same for who has none yet.
  static Result<Cluster> without_token();
  // The same with the token that `tutti login` has kept, whatever TUTTI_TOKEN_FILE says.
  static Result<Cluster> with_login();
  // That of `tutti up` in the home folder, whatever the variables say.
  static Result<Cluster> local();
  // The same of another home.
  static Result<Cluster> of_home(const std::string& home);

  Result<nlohmann::json> get(const std::string& path, Duration time_max = answer_time_max);
  Result<nlohmann::json> post(const std::string& path, const std::string& body = {});
  // What may be sent twice and is done once: if it is refused for now, it is sent again when the controller
  // wants it, as every get() is.
  Result<nlohmann::json> post_again(const std::string& path, const std::string& body);
  // The same until there is an answer: a controller that goes away before it has answered is waited for.
  // `what` is for the line that says so. `unknown`: nobody knows whether it was done.
  Result<nlohmann::json> send_until_answered(const std::string& method, const std::string& path,
                                             const std::string& body, const std::string& what);
  // Every node, user, token or secret, whatever the number of pages: {"nodes": [...]}, and so on.
  Result<nlohmann::json> nodes();
  Result<nlohmann::json> people();
  Result<nlohmann::json> tokens();
  Result<nlohmann::json> secrets();  // and why they cannot be opened, as `error`
  Result<> put(const std::string& path, const std::string& body);
  Result<> remove(const std::string& path);
  net::Client& client() { return client_; }
  std::string address() const { return target_.text(); }
  const net::Target& target() const { return target_; }
  const std::string& token() const { return token_; }
  // A second connection: a stream of events occupies one.
  net::Client another() const {
    net::Client client(target_, token_);
    client.mean(client_.cluster());
    return client;
  }

 private:
  Result<nlohmann::json> all_pages(const std::string& path);
  // Of what is empty, that of the local cluster is taken.
  static Result<net::Target> target_of(std::string address, std::string ca_file);
  // The first that there is: named, kept by `tutti login` if that counts, of the local cluster.
  static Result<Cluster> reach(net::Target target, std::string token_file, bool by_login);
  Cluster(net::Target target, std::string token)
      : target_(target), token_(token), client_(std::move(target), std::move(token)) {}
  Result<nlohmann::json> request(const std::string& method, const std::string& path, const std::string& body,
                                 Duration time_max = answer_time_max);
  Result<nlohmann::json> request_again(const std::string& method, const std::string& path,
                                       const std::string& body, Duration time_max);

  net::Target target_;
  std::string token_;
  bool by_login_ = false;
  net::Client client_;
};

// For a part of a path or query: everything but letters, digits and "._-" becomes %XX.
std::string url_encode(std::string_view text);

}  // namespace tutti::cli
