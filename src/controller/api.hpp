// The REST API: from a request to an answer. Runs on the network loop; reads and writes go through the core.
#pragma once

#include <memory>
#include <string>

#include "controller/core.hpp"
#include "controller/hub.hpp"
#include "net/http.hpp"
#include "sync/blobs.hpp"

namespace tutti::controller {

struct Tokens {
  std::string admin;
  std::string join;
};

class Api {
 public:
  Api(net::Loop& loop, Core& core, Hub& hub, Tokens tokens, std::string blob_folder);

  void handle(const std::shared_ptr<net::Exchange>& exchange);

 private:
  using Shared = std::shared_ptr<net::Exchange>;
  struct Attempts {
    int failed = 0;
    Instant since;
  };

  bool authorize(const Shared& exchange);
  bool too_many_failures(const std::string& remote);
  void handle_jobs(const Shared& exchange, const std::string& rest);
  void handle_job(const Shared& exchange, cluster::JobId job, const std::string& verb);
  void handle_nodes(const Shared& exchange, const std::string& rest);
  void handle_blobs(const Shared& exchange, const std::string& rest);
  void submit(const Shared& exchange);
  void change(const Shared& exchange, cluster::Event event);
  void show(const Shared& exchange,
            std::function<Result<std::string>(const cluster::State&, const wire::StoreHealth&)> view);

  net::Loop& loop_;
  Core& core_;
  Hub& hub_;
  Tokens tokens_;
  sync::BlobStore blobs_;
  std::map<std::string, Attempts> failures_;
};

// The description of the API, as OpenAPI 3 in JSON.
std::string openapi_json();

}  // namespace tutti::controller
