// The door of the REST API: finds the row of a request, lets in whom the row lets in, and hands it to the
// row's handler. Nothing is answered by a handler that is not in the table of routes.hpp. Runs on the network
// loop.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/rate.hpp"
#include "control/controller/call.hpp"
#include "control/controller/login.hpp"
#include "net/http/server.hpp"

namespace tutti::controller {

struct ApiOptions {
  Tokens tokens;
  std::string blob_folder;
  Rate requests;  // of one address that knows a token
  LoginOptions login = {};
  GiveToken give_token = nullptr;  // may be null where nobody can log in
  Registrar* registrar = nullptr;  // null: nobody shows a certificate here
  bool takes_join_token = true;    // else nodes come with certificates alone
};

class Api {
 public:
  Api(Core& core, Hub& hub, Explainer& explainer, Janitor& janitor, AuditKeeper& audit, Vault& vault,
      ApiOptions options);
  Api(const Api&) = delete;
  Api& operator=(const Api&) = delete;

  // By the head alone: is there such a page, may this one call it, how much may it send?
  net::Admission admit(const net::Request& head);
  // A request that was admitted. Of a large body the handler runs beside the loop.
  void handle(const std::shared_ptr<net::Exchange>& exchange);
  // Some tokens open something else now, or nothing.
  void change(people::DoorChanges changes) { gate_.change(std::move(changes)); }
  // What is under way beside the loop ends.
  void stop() {
    login_.stop();
    login_desk_.stop();
    bodies_.stop();
    audit_desk_.stop();
    desk_.stop();
    nodes_desk_.stop();
  }

 private:
  using Shared = std::shared_ptr<net::Exchange>;
  using Refusal = std::optional<net::Response>;

  // 404 or 405: there is no such page, or it does not take the method.
  net::Response refuse_unknown(const net::Request& request, const Page& page);
  // Nothing if there is nothing to be said against it.
  Identity identify(const net::Request& request) const;
  Refusal authorize(const net::Request& request, const Identity& by, Need need);
  // For the audit log.
  void note_refusal(const net::Request& request, const Identity& by, const Error& why);
  // Somebody opens something with his token: that is noted from time to time.
  void note_use(const Identity& by);
  // Of whoever has shown a certificate.
  Result<> check_peer(const net::Request& request) const;
  // A request that names another cluster is for that one.
  Refusal recognise(const net::Request& request) const;
  static Refusal take(RateLimits& limits, const net::Request& request, const std::string& what);
  RateLimits& limits_of(RateClass rate);

  Gate gate_;
  std::map<people::TokenId, Instant> used_;  // when that was noted last, on the steady clock
  sync::BlobStore blobs_;
  Desk desk_{blob_desk};
  Desk nodes_desk_{node_desk};
  Desk bodies_{body_desk};
  Login login_;
  Desk login_desk_{login_desk};
  Desk audit_desk_{audit_desk};
  Services services_;
  RateLimits requests_;      // by address
  RateLimits open_pages_;    // by address, without a token
  RateLimits wrong_tokens_;  // by address
  RateLimits logins_;        // by address
  RateLimits joins_;         // by address
};

}  // namespace tutti::controller
