// One request on its way to an answer, as the handlers of the routes see it: what its path and query say, the
// parts of the controller that they may use, and the usual ways to answer. Handlers run on the network loop,
// or beside it if the body is large; a call is a value that goes along to other threads, and is answered from
// any.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "control/controller/core.hpp"
#include "control/controller/desk.hpp"
#include "control/controller/explainer.hpp"
#include "control/controller/gate.hpp"
#include "control/controller/hub.hpp"
#include "control/controller/janitor.hpp"
#include "control/controller/routes.hpp"
#include "net/http/http.hpp"
#include "net/sync/blobs.hpp"

namespace tutti::controller {

class AuditKeeper;
class Login;
class Registrar;
class Vault;

// They outlive every call.
struct Services {
  Core& core;
  Hub& hub;
  Explainer& explainer;
  sync::BlobStore& blobs;
  Desk& desk;
  Desk& nodes_desk;
  Janitor& janitor;
  Login& login;
  Desk& login_desk;
  Desk& audit_desk;
  AuditKeeper& audit;
  Vault& vault;
  Registrar* registrar = nullptr;  // null: this controller signs no certificates
  bool takes_join_token = true;    // of whoever has the one of the folder
};

// An error as an answer. Without a status it is 400, 409 or 503, as the error's code says. One that may go
// well another time says when to come again: of what a person may have to mend first, not soon.
net::Response refusal(const Error& error, int status = 0);
net::Response no_such_page(const net::Request& request);
// For whoever asks while what is in memory may be more than what is stored (StoreHealth): a disk that can
// neither be written nor read.
Error not_known(const wire::StoreHealth& health);

class Call {
 public:
  using View = std::function<Result<std::string>(const cluster::State&, const wire::StoreHealth&,
                                                 const people::Caller&)>;

  Call(const Services& services, std::shared_ptr<net::Exchange> exchange, Arguments arguments, Identity by)
      : services_(services),
        exchange_(std::move(exchange)),
        arguments_(std::move(arguments)),
        by_(std::make_shared<const Identity>(std::move(by))) {}

  const Services& services() const { return services_; }
  net::Exchange& exchange() const { return *exchange_; }
  const net::Request& request() const { return exchange_->request(); }
  const std::string& body() const { return request().body; }

  // On the loop, before anything else: from now on is_over() knows whether somebody still waits for the
  // answer.
  void watch();
  bool is_over() const { return over_ != nullptr && *over_; }

  // Who asks. What he may is asked of the state when it matters: see caller().
  const Identity& by() const { return *by_; }
  // On the core's thread: who that is now, and what he may.
  Result<people::Caller> caller(const cluster::State& state) const;

  // Of the path; the route's pattern names it.
  const std::string& argument(std::string_view name) const;
  // Of the query: "" if it is not there; whether it is 1 or true; a number of at least -1, or nothing if it
  // is none.
  std::string text(const std::string& name) const;
  bool is_set(const std::string& name) const;
  std::optional<std::int64_t> number(const std::string& name, std::int64_t otherwise) const;

  void answer(std::string json) const;
  void refuse(const Error& error, int status = 0) const { exchange_->answer(refusal(error, status)); }
  // The same may go well in a moment; the remedy says so.
  void refuse_for_now(Error error) const;
  // Lets the desk do it. It is refused for now if too much waits there, and if it fails.
  void hand_to(Desk& desk, std::function<void()> task) const;
  // For the audit log: something that happens elsewhere, or is refused, in the name of who asks.
  void note(cluster::Noted noted) const;
  // The same before it happens: it is done when the line is stored, on the core's thread, and refused where
  // that cannot be.
  void note_first(cluster::Noted noted, std::function<void()> then) const;
  // Lets the event happen, if he who asks may, and answers after the commit. A wrong request is answered with
  // this status.
  void change(cluster::Event event, int status_if_wrong = 400) const;
  // The same with this answer.
  void change(cluster::Event event, std::string answer) const;
  // The same, and this is called before it is answered, however it went.
  void change(cluster::Event event, std::string answer, const std::function<void()>& done) const;
  // Who signs for the cluster. Null, and refused, where this controller does not.
  Registrar* registrar() const;
  // On the loop. Answers with a view of the committed state, or with 404; no view is made for who has gone.
  void show(View view) const;

 private:
  using Answer = std::function<std::string(const std::vector<cluster::JobId>&)>;
  void happen(cluster::Event event, int status_if_wrong, Answer answer) const;

  Services services_;
  std::shared_ptr<net::Exchange> exchange_;
  Arguments arguments_;
  std::shared_ptr<const Identity> by_;
  std::shared_ptr<std::atomic<bool>> over_;  // null: not watched
};

}  // namespace tutti::controller
