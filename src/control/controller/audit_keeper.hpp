// Brings the audit log from the store into files, and removes those that are too old or too much. A thread of
// its own, because the disk may be slow: until a line is in a file, it is in the store.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/clock/clock.hpp"
#include "control/audit/shelf.hpp"
#include "control/controller/core.hpp"
#include "control/wire/views.hpp"

namespace tutti::controller {

constexpr Bytes kept_audit_default = gib(10);
constexpr Duration kept_audit_age_default = 400 * 24h;
constexpr Duration audit_shelved_every = 5s;
constexpr Duration audit_trimmed_every = 10min;
// A machine may start with any date, until it has asked somebody.
constexpr Duration audit_date_believed_after = 1h;

struct AuditOptions {
  std::string folder;  // of the controller
  Bytes bytes_max = kept_audit_default;
  Duration age_max = kept_audit_age_default;  // 0: for ever
};

class AuditKeeper {
 public:
  AuditKeeper(Core& core, AuditOptions options) : core_(core), options_(std::move(options)) {}
  AuditKeeper(const AuditKeeper&) = delete;
  AuditKeeper& operator=(const AuditKeeper&) = delete;
  ~AuditKeeper() { stop(); }

  // The core must have been started, and may be stopped only after this. What it tells the core happens
  // before all that is asked later.
  Result<> start();
  void stop();

  // What there is, in files and still in the store. Beside the network loop: the disk may be slow.
  Result<wire::AuditPage> read(const audit::Query& query) const;

  // What the files take, as it was found last, and what they may. Any thread.
  void tell(wire::Kept& kept) const;

 private:
  // The newest lines and the head; nothing if that cannot be known now.
  std::optional<cluster::AuditLog> waiting() const;
  void run();
  void shelve();
  void trim();

  Core& core_;
  const AuditOptions options_;
  std::string shelf_folder_;
  std::optional<audit::Shelf> shelf_;
  std::string trouble_;  // as it was logged last
  std::atomic<std::int64_t> bytes_ = 0;
  CalmDate date_;
  Instant next_trim_;
  Instant began_;
  std::mutex mutex_;
  std::condition_variable woken_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace tutti::controller
