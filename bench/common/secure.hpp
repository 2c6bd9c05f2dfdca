// A cluster as it is for many people, on loopback, for as long as the object lives: the controller has an
// authority and speaks TLS, nodes have joined and show their certificates, a user has a token of his own. One
// thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/local.hpp"
#include "common/measure.hpp"
#include "support/process.hpp"

namespace tutti::bench {

// Below a folder that ranks of anybody can pass through, where there is one: removed with all that it holds.
class OpenFolder {
 public:
  static Result<std::unique_ptr<OpenFolder>> make();
  OpenFolder(const OpenFolder&) = delete;
  OpenFolder& operator=(const OpenFolder&) = delete;
  ~OpenFolder();
  const std::string& path() const { return path_; }

 private:
  OpenFolder() = default;
  std::string path_;
};

struct SecureOptions {
  std::string folder;  // that is not there yet
  int nodes = 1;
  int gpus = 1;
  std::string user;
  bool runs_as_user = false;  // ranks are the account of that name, and not what the agents are
};

class SecureCluster {
 public:
  static Result<std::unique_ptr<SecureCluster>> start(SecureOptions options);
  SecureCluster(const SecureCluster&) = delete;
  SecureCluster& operator=(const SecureCluster&) = delete;
  // Ends all that was started, whatever happened before.
  ~SecureCluster();

  // Of the user.
  const Environment& env() const { return user_env_; }

 private:
  explicit SecureCluster(SecureOptions options) : options_(std::move(options)) {}
  std::string file(const std::string& name) const { return options_.folder + "/" + name; }
  std::string agent_folder(int node) const { return file("nodes/n" + std::to_string(node)); }
  Result<> begin();
  Result<> start_controller();
  Result<> start_agents();
  Result<> wait_for_nodes() const;
  Result<> let_user_in();

  SecureOptions options_;
  std::string address_;
  Environment admin_env_;
  Environment user_env_;
  std::unique_ptr<support::Process> controller_;
  std::vector<std::unique_ptr<support::Process>> agents_;
};

}  // namespace tutti::bench
