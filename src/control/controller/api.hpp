// The door of the REST API: finds the row of a request, lets in whom the row lets in, and hands it to the
// row's handler. Nothing is answered by a handler that is not in the table of routes.hpp. Runs on the network
// loop.
#pragma once

#include <memory>
#include <string>

#include "base/rate.hpp"
#include "control/controller/call.hpp"

namespace tutti::controller {

struct Tokens {
  std::string admin;
  std::string join;
};

struct ApiOptions {
  Tokens tokens;
  std::string blob_folder;
  Rate requests;  // of one address that knows a token
};

class Api {
 public:
  Api(Core& core, Hub& hub, Explainer& explainer, const Janitor& janitor, ApiOptions options);
  Api(const Api&) = delete;
  Api& operator=(const Api&) = delete;

  void handle(const std::shared_ptr<net::Exchange>& exchange);

 private:
  using Shared = std::shared_ptr<net::Exchange>;

  // 404 or 405: there is no such page, or it does not take the method.
  void refuse_unknown(const Shared& exchange, const Page& page);
  // These are false when they have answered with a refusal.
  bool authorize(const Shared& exchange, Caller caller);
  bool within(RateLimits& limits, const Shared& exchange, const std::string& what);
  RateLimits& limits_of(RateClass rate);

  Tokens tokens_;
  sync::BlobStore blobs_;
  Services services_;
  RateLimits requests_;      // by address
  RateLimits open_pages_;    // by address, without a token
  RateLimits wrong_tokens_;  // by address
};

}  // namespace tutti::controller
