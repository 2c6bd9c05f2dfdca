// A Slurm cluster of virtual nodes on this host, in a scratch folder, for as long as the object lives. It has
// an authentication daemon of its own and so leaves the host's set-up alone. One thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/measure.hpp"
#include "support/process.hpp"

namespace tutti::bench {

class SlurmCluster {
 public:
  // Fails with what is missing: the packages, or the rights of root.
  static Result<std::unique_ptr<SlurmCluster>> start(int nodes, int gpus);
  SlurmCluster(const SlurmCluster&) = delete;
  SlurmCluster& operator=(const SlurmCluster&) = delete;
  ~SlurmCluster();

  const Environment& env() const { return env_; }
  pid_t controller_pid() const { return pid_of("slurmctld"); }
  Result<std::string> run(const std::vector<std::string>& words) const { return run_command(words, env_); }
  // How many jobs have not ended.
  Result<int> unfinished() const;

 private:
  SlurmCluster(int nodes, int gpus) : nodes_(nodes), gpus_(gpus) {}
  Result<> make_files();
  Result<> make_devices() const;
  Result<> start_daemons();
  pid_t pid_of(const std::string& daemon) const;
  void end(const std::string& daemon) const;
  std::string file(const std::string& name) const { return folder_.path() + "/" + name; }

  int nodes_;
  int gpus_;
  support::TempFolder folder_;
  Environment env_;
};

}  // namespace tutti::bench
