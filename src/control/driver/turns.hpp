// The controller's loop without its thread, its sockets and its clock: a turn takes what has happened, steps
// the state machine, lets the scheduler look, commits what changed, and gives back what may become visible
// now. Nothing that it gives back is ahead of the store. Whoever drives it brings the clock: a thread on the
// wall's, the simulator on its own. One thread at a time.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "control/cluster/step.hpp"
#include "control/store/store.hpp"
#include "control/wire/views.hpp"

namespace tutti::driver {

constexpr Duration tick_every = 200ms;

// What becomes visible after a commit.
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

using Reply = std::function<void(Result<std::vector<cluster::JobId>>)>;
// The state is not const because its index fills in at the first question what follows from the rest.
using Query = std::function<void(cluster::State&, const wire::StoreHealth&)>;

// Something that waits for a turn: an event, or a question if there is a query.
struct Item {
  cluster::Event event;
  Reply reply;  // may be null
  Query query;
};

class Turns {
 public:
  using Clock = std::function<Instant()>;

  // What a turn has brought. First the delivery goes out, then the answers, then the questions are answered.
  struct Outcome {
    struct Answer {
      Reply reply;
      Result<std::vector<cluster::JobId>> result;
    };
    Delivery delivery;
    std::vector<cluster::JobId> ended;  // jobs
    std::vector<Answer> answers;
    std::vector<Query> queries;
  };

  Turns(store::Store& store, Clock clock, const cluster::Retention& keep = {});
  Turns(const Turns&) = delete;
  Turns& operator=(const Turns&) = delete;

  // Reads the store; there are no turns before that has worked.
  Result<> load();

  // `watched`: somebody wants to hear of changes; their JSON is made only then.
  Outcome turn(std::vector<Item> items, bool watched);
  // How long the next turn may be put off if nothing happens.
  Duration patience() const;
  // Something that agents said was dropped before it came here: the next turn asks them again.
  void miss() { resync_ = true; }
  // When all that a turn has brought has gone out: the store tidies up from time to time.
  void rest();

  const cluster::State& state() const { return state_; }
  void answer(const Query& query) { query(state_, health_); }
  const wire::StoreHealth& health() const { return health_; }
  const cluster::Retention& keep() const { return keep_; }

 private:
  void keep_leases(Instant now);
  void probe(Instant now);
  // True if it is one of those that work on a full disk, too.
  bool step(Outcome& outcome, cluster::Effects& effects, Instant now, Item& item);
  void schedule(cluster::Effects& effects, Instant now);
  bool commit(const cluster::Effects& effects, bool frees_room);
  std::vector<store::Write> writes_of(const cluster::Effects& effects) const;
  Delivery delivery(const cluster::Effects& effects, bool watched) const;
  void refuse(Outcome& outcome, Instant now);
  Result<> read_store();

  store::Store& store_;
  Clock clock_;
  const cluster::Retention keep_;
  cluster::State state_;
  bool state_is_stored_ = true;  // false after a failed commit, until the store could be read
  std::uint64_t revision_ = 0;
  wire::StoreHealth health_;
  bool resync_ = false;
  Instant last_turn_;
  Instant next_tick_;
  Instant next_probe_;
  Instant next_pass_;
  Instant next_rest_;
  bool pass_wanted_ = false;
};

}  // namespace tutti::driver
