// All ranks of one job, as one of them sees it: who they are, the line to the hub, the flight recorder, the
// fault. Shared by the communicators of a process. Any thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "comm/collectives.hpp"
#include "comm/communicator.hpp"
#include "comm/control.hpp"
#include "comm/fault.hpp"
#include "comm/hub.hpp"
#include "comm/links.hpp"
#include "comm/recorder.hpp"
#include "comm/watchdog.hpp"

namespace tutti::comm {

struct Member {
  std::string node;
  pid_t pid = 0;
  Address address;
};

class World {
 public:
  static Result<std::shared_ptr<World>> connect(const Options& options);
  ~World();

  // The collectives of a group of these ranks, this one among them; all of them call it. `group` must be the
  // same for all of them and unlike any other group's; the name is for messages.
  Result<std::unique_ptr<Collectives>> establish(std::uint64_t group, const std::string& name,
                                                 const std::vector<int>& ranks, Clock::time_point deadline);

  // Finds out who is to blame for an operation that did not end, tells everybody, and returns it as this
  // rank's error.
  Error blame(const Question& question, const Outcome& outcome);

  std::string text_of(int rank) const;

  bool shares_memory(int a, int b) const;

  const Options& options() const { return options_; }
  const std::vector<Member>& members() const { return members_; }
  Fault& fault() { return fault_; }
  Recorder& recorder() { return recorder_; }
  Control& control() { return *control_; }
  Watchdog& watchdog() { return *watchdog_; }

  // An error if there is a fault, or if another rank says that there is one.
  Result<> check();

 private:
  explicit World(Options options);

  Result<> open_hub(Clock::time_point deadline);
  Result<> meet(Clock::time_point deadline);
  // What this rank would ask about an operation of its own that has begun.
  Question question_about(const OperationRecord& pending);
  Report answer(const Question& question);
  void watch();
  void fail(const std::string& text);
  std::string missing_text(const Control::Missing& missing, const std::vector<int>& ranks,
                           const Error& error) const;

  Options options_;
  Fault fault_;
  Recorder recorder_;
  std::vector<Member> members_;
  struct GroupName {
    std::string name;
    std::vector<int> ranks;
  };
  std::mutex groups_mutex_;
  std::map<std::uint64_t, GroupName> groups_;
  // Of the control thread: the operation that it has wondered about.
  std::optional<std::pair<std::uint64_t, std::uint64_t>> wondered_;
  // The order of ending: first no more links, then the farewell, the hub last.
  std::unique_ptr<Hub> hub_;
  std::unique_ptr<Control> control_;
  std::unique_ptr<Links> links_;
  std::optional<Watchdog> watchdog_;
};

// Mixes a number into another: names of groups are made from their parent's.
std::uint64_t mix(std::uint64_t a, std::uint64_t b);

}  // namespace tutti::comm
