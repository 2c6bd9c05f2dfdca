// The controller's part in secrets: seals what comes, opens what a rank is to get, and seals all of it anew
// when there is another key. A thread of its own does the last, bit by bit, because the files of keys may be
// on a slow disk: the old key goes when the store has nothing under it any more, and not before.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "control/controller/core.hpp"
#include "control/controller/sealer.hpp"

namespace tutti::controller {

// How soon it is tried again where keys are missing, or the store cannot be written.
constexpr Duration secrets_tried_every = 5s;

class Vault {
 public:
  Vault(Core& core, const std::string& folder) : core_(core), sealer_(folder) {}
  Vault(const Vault&) = delete;
  Vault& operator=(const Vault&) = delete;
  ~Vault() { stop(); }

  // Before the core is started: with the keys that there are. Whatever is wrong with them, the controller
  // goes on: jobs without secrets run.
  void open();
  // After that.
  void start();
  void stop();

  // ---- for requests, beside the network loop: these wait for a disk and for the core
  Result<cluster::SetSecret> seal(cluster::SecretId id, std::string_view value);
  // On the disk, and not in use until the core says so (UseSecretKey), after which settle() is called.
  Result<std::string> make_key();
  void settle();

  // On the core's thread, without the disk: for those who may have it.
  Result<std::string> open(const cluster::State& state, const cluster::Secret& secret) const {
    return sealer_.open(state.cluster_id, secret);
  }
  // Why what is sealed cannot be opened; "" if it can. Any thread.
  std::string trouble(const cluster::State& state) const;

  // One bit of what the thread does: looks at some, and seals anew what it can. For tests, which do it
  // themselves.
  enum class Step { did_some, is_done, failed };
  Step rewrap_some();

 private:
  struct Look {
    std::string key;  // that is in use
    bool has_secrets = false;
    std::vector<cluster::Secret> old;  // some of those under others
  };
  // Nothing if it is not known now. Of the old ones those behind that one; nothing: from the first on.
  std::optional<Look> look(const std::optional<cluster::SecretId>& behind = {}) const;
  void run();
  void wake();
  void tell(const std::string& trouble);

  Core& core_;
  Sealer sealer_;
  std::string told_;  // of the trouble, as it was logged last
  // Some up to this one cannot be opened, and do not keep those behind them from being sealed anew.
  std::optional<cluster::SecretId> looked_at_;
  std::mutex mutex_;
  std::condition_variable woken_;
  bool stopping_ = false;
  bool woken_up_ = false;
  std::thread thread_;
};

}  // namespace tutti::controller
