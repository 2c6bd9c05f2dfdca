// Does what takes long beside the network loop, which hears the agents and must not wait: the disks and
// hashes of shipped folders, the reading of large bodies. A few threads of its own; tasks come from any, and
// addresses take turns.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "control/controller/lines.hpp"

namespace tutti::controller {

struct DeskOptions {
  std::size_t threads = 1;
  std::size_t waiting_max = 1;
  const char* crowded = "too much waits";  // for those who are sent away
};

// Each that waits may hold 16 MiB: a gigabyte in all.
constexpr DeskOptions blob_desk{
    .threads = 2, .waiting_max = 64, .crowded = "too many blobs are on their way at once"};
// What nodes fetch, so that nobody who ships folders is in their way. None that waits has a body.
constexpr DeskOptions node_desk{
    .threads = 2, .waiting_max = 1'024, .crowded = "too many nodes fetch blobs at once"};
// One at a time: read, a body takes several times its bytes.
constexpr DeskOptions body_desk{
    .threads = 1, .waiting_max = 16, .crowded = "too many large bodies wait to be read"};

// The disk of its files may stand still, which keeps nobody from what the others are for.
constexpr DeskOptions audit_desk{
    .threads = 2, .waiting_max = 64, .crowded = "too many read the audit log at once"};
// One at a time: the keys of an issuer may have to be fetched first.
constexpr DeskOptions login_desk{
    .threads = 1, .waiting_max = 64, .crowded = "too many people log in at once"};

class Desk {
 public:
  explicit Desk(const DeskOptions& options);
  Desk(const Desk&) = delete;
  Desk& operator=(const Desk&) = delete;
  ~Desk() { stop(); }

  // What still waits is not done.
  void stop();

  // Runs it on a thread of the desk when it is the address's turn, and it does not throw; false if too much
  // waits, of all or of this address: nobody takes all the places.
  [[nodiscard]] bool run(const std::string& address, std::function<void()> task);
  const char* crowded() const { return crowded_; }

 private:
  void work();

  const char* const crowded_;
  std::mutex mutex_;
  std::condition_variable woken_;
  Lines<std::function<void()>> waiting_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace tutti::controller
