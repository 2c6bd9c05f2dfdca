// The controller's heart: the thread that takes queued events from turn to turn (driver/turns.hpp), and sends
// and answers what a turn has brought. Sockets and timers only enqueue.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "control/controller/lines.hpp"
#include "control/driver/inbox.hpp"
#include "control/driver/linger.hpp"
#include "control/driver/turns.hpp"
#include "control/store/store.hpp"

namespace tutti::controller {

// So that events do not wait long for pages, however dear each is.
constexpr std::size_t looks_per_turn_max = 16;
constexpr Duration looks_time_max = 20ms;
// Of one address never more than three times what is left: all its followers, when they come again at once.
constexpr std::size_t looks_waiting_max = 4'096;

class Core {
 public:
  // Called on the core's thread; must not block.
  using Deliver = std::function<void(driver::Delivery)>;
  using Reply = driver::Reply;
  using Query = driver::Query;
  using IsOver = std::function<bool()>;

  // Called on the core's thread when a job has ended.
  using Ended = std::function<void(const cluster::Job&)>;

  // `new_cluster_id` is for a store that has none yet.
  Core(store::Store& store, Deliver deliver, Ended ended = nullptr, std::string new_cluster_id = "",
       const cluster::Retention& keep = {});
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;
  ~Core();

  // Before it starts: what ranks are to get is opened by this, on the core's thread.
  void open_secrets_with(driver::OpenSecret open) { turns_.open_secrets_with(std::move(open)); }
  void give_attempts(driver::AttemptSecret secret) { turns_.give_attempts(std::move(secret)); }
  // Loads the state; the thread starts only if that works.
  Result<> start();
  void stop();

  // As they were when it started: the cluster's id, and the identities of the agents by node.
  const std::string& cluster_id() const { return cluster_id_; }
  const std::map<std::string, std::string>& agents_known() const { return agents_known_; }
  const people::DoorChanges& doors_known() const { return doors_known_; }
  // Nodes with a certificate, then.
  const std::map<cluster::NodeName, cluster::Member>& members_known() const { return members_known_; }
  // And when there was no controller before this one.
  const cluster::Absence& absence() const { return absence_; }

  // From any thread. `reply` runs on the core's thread after the commit; it may be null. False if too much
  // waits: then it is dropped, and there is no reply.
  bool happen(cluster::Event event, Reply reply) {
    return happen(std::move(event), std::move(reply), {}, "");
  }
  // The same for whom somebody asks from that address, who may or not (control/people).
  bool happen(cluster::Event event, Reply reply, std::optional<people::Credential> by, std::string from);
  // The network loop is awake, and so hears the agents.
  void awake();
  // Reads the committed state, in order with the events.
  void ask(Query query);
  // Reads it sooner, ahead of the events that wait: it shows all that was answered until now, and waits for
  // one commit at most, and for one look of each other address that waits. Once `is_over`, it is passed over;
  // null: never. False if too many wait, of all or of this address.
  [[nodiscard]] bool look(const std::string& address, Query query, IsOver is_over = nullptr);
  // Of what is over. Any thread.
  const cluster::Retention& keep() const { return turns_.keep(); }

  // Whether anybody wants to hear of changes: their JSON is made only then.
  std::atomic<int> watchers{0};

 private:
  struct Look {
    Query query;
    IsOver is_over;
  };

  void run();
  void take_turns();
  // False when the core is to stop and nothing waits any more.
  bool take(std::vector<driver::Item>& items);
  void answer_looks(std::unique_lock<std::mutex>& lock);
  void note_turn(std::chrono::steady_clock::time_point begun, std::size_t answered);
  void log_health(bool was_well) const;

  Deliver deliver_;
  Ended ended_;
  driver::Turns turns_;
  std::string cluster_id_;
  std::map<std::string, std::string> agents_known_;
  people::DoorChanges doors_known_;
  std::map<cluster::NodeName, cluster::Member> members_known_;
  cluster::Absence absence_;
  driver::Linger linger_;
  std::chrono::steady_clock::time_point turned_at_;

  std::mutex mutex_;
  std::condition_variable woken_;
  driver::Inbox waiting_;
  Lines<Look> looks_{looks_waiting_max};
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace tutti::controller
