// The REST API: from a request to an answer. Runs on the network loop; reads and writes go through the core.
#pragma once

#include <memory>
#include <string>

#include "base/rate.hpp"
#include "control/controller/core.hpp"
#include "control/controller/explainer.hpp"
#include "control/controller/hub.hpp"
#include "net/http/http.hpp"
#include "net/sync/blobs.hpp"

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
  Api(net::Loop& loop, Core& core, Hub& hub, Explainer& explainer, ApiOptions options);

  void handle(const std::shared_ptr<net::Exchange>& exchange);

 private:
  using Shared = std::shared_ptr<net::Exchange>;

  bool authorize(const Shared& exchange);
  // False when the address has asked too often, which is then answered.
  bool within(RateLimits& limits, const Shared& exchange, const std::string& what);
  void handle_open(const Shared& exchange);
  void handle_jobs(const Shared& exchange);
  void handle_job(const Shared& exchange, cluster::JobId job, const std::string& verb);
  void handle_nodes(const Shared& exchange);
  void handle_blobs(const Shared& exchange);
  void handle_queues(const Shared& exchange);
  void handle_fabric(const Shared& exchange);
  void explain_job(const Shared& exchange, cluster::JobId job);
  void explain_submit(const Shared& exchange);
  void submit(const Shared& exchange);
  void list_jobs(const Shared& exchange);
  // A wrong request is answered with this status.
  void change(const Shared& exchange, cluster::Event event, int status_if_wrong = 400);
  void show(const Shared& exchange,
            std::function<Result<std::string>(const cluster::State&, const wire::StoreHealth&)> view);

  net::Loop& loop_;
  Core& core_;
  Hub& hub_;
  Explainer& explainer_;
  Tokens tokens_;
  sync::BlobStore blobs_;
  RateLimits requests_;      // by address
  RateLimits open_pages_;    // by address, without a token
  RateLimits wrong_tokens_;  // by address
};

// The description of the API, as OpenAPI 3 in JSON.
std::string openapi_json();

}  // namespace tutti::controller
