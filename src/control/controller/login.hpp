// People who log in: an issuer of OpenID Connect has said who somebody is, and gets a token of this cluster
// for him. Tells at what issuer, and believes only what that one has said, lately and to us.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.hpp"
#include "control/controller/core.hpp"
#include "control/wire/login.hpp"
#include "net/oidc/fetch/fetch.hpp"
#include "net/oidc/jwt.hpp"

namespace tutti::controller {

struct LoginOptions {
  std::string issuer;     // "": nobody can log in
  std::string client_id;  // what the issuer calls us
  std::string scopes = "openid profile email";
  std::string name_claim;  // "": preferred_username, and sub where there is none
  std::string ca_file;     // who has signed the issuer's certificate; "": whom this machine trusts
};

// Both of issuer and client, or none; an address that can be asked, and an authority that can be read.
Result<> check_login(const LoginOptions& options);

// A token of this cluster for somebody whose word is believed, at that address. Beside the network loop.
using GiveToken = std::function<Result<std::string>(const oidc::Identity& identity, const std::string& from)>;

// Of those whom an admin has let in; waits for the commit.
GiveToken gives_tokens(Core& core);

// The issuer's tokens with which somebody has logged in, as long as they would be taken: each is good for
// once. Of more than fifty thousand the oldest is forgotten.
class Redeemed {
 public:
  bool has(std::string_view token, Instant now);
  void add(std::string_view token, Instant now);

 private:
  void forget_oldest();

  std::set<std::string> hashes_;
  std::deque<std::pair<Instant, std::string>> oldest_first_;
};

class Login {
 public:
  // `steady` and `wall` are clocks, for when to ask for keys and for whether a token holds.
  using Clock = std::function<Instant()>;
  Login(LoginOptions options, GiveToken give_token, Clock steady, Clock wall)
      : options_(std::move(options)),
        give_token_(std::move(give_token)),
        steady_(std::move(steady)),
        wall_(std::move(wall)) {}
  Login(const Login&) = delete;
  Login& operator=(const Login&) = delete;

  bool is_on() const { return !options_.issuer.empty(); }
  wire::LoginSettings settings() const { return {options_.issuer, options_.client_id, options_.scopes}; }

  // May ask the issuer for its keys, which takes seconds: not on the network loop, and on one thread at a
  // time. `invalid`: the issuer has not said this.
  Result<wire::LoginReply> log_in(const wire::LoginRequest& request, const std::string& from);
  // Who waits for the issuer waits no longer. Any thread.
  void stop() { stopping_ = true; }

 private:
  Result<> fetch_keys();
  // Those that this token needs, as far as they can be had.
  Result<const oidc::KeySet*> keys_for(const oidc::Header& header);

  const LoginOptions options_;
  const GiveToken give_token_;
  const Clock steady_;
  const Clock wall_;
  oidc::KeyRing keys_;
  Redeemed redeemed_;
  std::string trouble_;  // why there are no keys
  std::atomic<bool> stopping_ = false;
};

}  // namespace tutti::controller
