// A local cluster of tutti in a scratch folder, for as long as the object lives. One thread, but for
// make_api().
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/measure.hpp"
#include "net/http/client.hpp"
#include "support/process.hpp"

namespace tutti::bench {

// One connection to the controller. One thread.
class Api {
 public:
  Api(net::Target target, std::string token) : client_(std::move(target), std::move(token)) {}

  // Paths below /api/v1/.
  Result<nlohmann::json> get(const std::string& path) { return request("GET", path, ""); }
  Result<nlohmann::json> post(const std::string& path, const std::string& body = {}) {
    return request("POST", path, body);
  }
  // The id of the first job of the request.
  Result<std::string> submit(const nlohmann::json& jobs);

 private:
  Result<nlohmann::json> request(const std::string& method, const std::string& path, const std::string& body);

  net::Client client_;
};

class LocalCluster {
 public:
  // `home`: a folder that is not there yet, and stays; "" for one of its own. `program`: "" for that of this
  // build.
  static Result<std::unique_ptr<LocalCluster>> start(int nodes, int gpus, const std::string& home = "",
                                                     const std::string& program = "");
  LocalCluster(const LocalCluster&) = delete;
  LocalCluster& operator=(const LocalCluster&) = delete;
  // `tutti down`, whatever happened before.
  ~LocalCluster();

  const Environment& env() const { return env_; }
  Api make_api() const { return {target_, token_}; }
  pid_t controller_pid() const;
  Result<std::string> run(const std::vector<std::string>& words) const;
  // The words with the program in front of them.
  static std::vector<std::string> command(std::vector<std::string> words, const std::string& program = "");

 private:
  LocalCluster() = default;
  Result<> connect();

  support::TempFolder folder_;
  std::string home_;
  std::string program_;
  Environment env_;
  net::Target target_;
  std::string token_;
};

}  // namespace tutti::bench
