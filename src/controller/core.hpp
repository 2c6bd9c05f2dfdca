// The controller's heart: one thread that takes queued events, steps the state machine, commits what changed
// and only then sends and answers. Sockets and timers only enqueue.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cluster/step.hpp"
#include "store/store.hpp"
#include "wire/objects.hpp"

namespace tutti::controller {

constexpr std::size_t waiting_items_max = 200'000;  // beyond it requests are refused

// What becomes visible after a commit. Called on the core's thread; must not block.
struct Delivery {
  struct Message {
    std::string node;
    std::string frame;
    cluster::JobId job;  // of a start: log readers follow it
    std::int32_t attempt = 0;
    bool start = false;
  };
  struct JobChange {
    cluster::JobId job;
    bool finished = false;
    std::string json;
  };
  std::vector<Message> messages;
  std::vector<JobChange> jobs;
  std::vector<std::string> nodes;  // JSON of changed nodes
  bool resync = false;             // what agents said last may be lost: ask them again

  bool empty() const { return messages.empty() && jobs.empty() && nodes.empty() && !resync; }
};

class Core {
 public:
  using Deliver = std::function<void(Delivery)>;
  using Reply = std::function<void(Result<std::vector<cluster::JobId>>)>;
  // The state is not const because its index fills in at the first question what follows from the rest.
  using Query = std::function<void(cluster::State&, const wire::StoreHealth&)>;

  Core(store::Store& store, Deliver deliver);
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;
  ~Core();

  // Loads the state; the thread starts only if that works.
  Result<> start();
  void stop();

  // From any thread. `reply` runs on the core's thread after the commit; it may be null.
  void happen(cluster::Event event, Reply reply);
  // Reads the committed state, in order with the events.
  void ask(Query query);

  // Whether anybody wants to hear of changes: their JSON is made only then.
  std::atomic<int> watchers{0};

 private:
  struct Item {
    cluster::Event event;
    Reply reply;
    Query query;
  };
  struct Answer {
    Reply reply;
    Result<std::vector<cluster::JobId>> result;
  };
  struct Batch {
    cluster::Effects effects;  // of all its events
    std::vector<Answer> answers;
    std::vector<Query> queries;
  };

  void run();
  std::vector<Item> take();
  void step(Batch& batch, Instant now, Item& item);
  void schedule(Batch& batch, Instant now);
  void finish(Batch& batch, Instant now);
  bool commit(const cluster::Effects& effects);
  Delivery delivery(const cluster::Effects& effects) const;
  void recover(std::string why);
  void probe(Instant now);
  void keep_leases(Instant now);
  Result<> load();

  store::Store& store_;
  Deliver deliver_;
  cluster::State state_;
  std::uint64_t revision_ = 0;
  wire::StoreHealth health_;
  Instant last_turn_;
  Instant next_tick_;
  Instant next_probe_;
  Instant next_pass_;
  bool pass_wanted_ = false;

  std::mutex mutex_;
  std::condition_variable woken_;
  std::vector<Item> waiting_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace tutti::controller
