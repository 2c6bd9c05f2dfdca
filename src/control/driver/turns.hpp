// The controller's loop without its thread, its sockets and its clock: a turn takes what has happened, steps
// the state machine, lets the scheduler look, commits what changed, and gives back what may become visible
// now. Nothing that it gives back is ahead of the store. Whoever drives it brings the clocks: a thread those
// of its machine, the simulator its own. One thread at a time.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "control/cluster/step.hpp"
#include "control/driver/delivery.hpp"
#include "control/driver/outbox.hpp"
#include "control/driver/scribe.hpp"
#include "control/store/store.hpp"
#include "control/wire/views.hpp"

namespace tutti::driver {

constexpr Duration tick_every = 200ms;
// The loop that hears the agents says so often that it is awake.
constexpr Duration awake_every = 200ms;

using Reply = std::function<void(Result<std::vector<cluster::JobId>>)>;
// The state is not const because its index fills in at the first question what follows from the rest.
using Query = std::function<void(cluster::State&, const wire::StoreHealth&)>;

// What the clocks say: the date, which may be set, and one that only goes on.
struct Now {
  // Where nobody sets the date they are one.
  Now(Instant both) : date(both), steady(both) {}
  Now(Instant date_now, Instant steady_now) : date(date_now), steady(steady_now) {}

  Instant date;
  Instant steady;
};

// Something that waits for a turn: an event, a question if there is a query, or only the word of the loop
// that hears the agents that it was awake then. What was heard before that has had its turn when it has.
struct Item {
  cluster::Event event;
  Reply reply;  // may be null
  Query query;
  std::optional<Instant> awake = {};  // on the steady clock
  // Who asks for the event, and so may or not; nothing for what agents tell.
  std::optional<people::Credential> by = {};
  std::string from = {};  // the address of who asks, for the audit log
};

class Turns {
 public:
  using Clock = std::function<Now()>;

  // What a turn has brought. First the delivery goes out, then the answers, then the questions are answered.
  struct Outcome {
    struct Answer {
      Reply reply;
      Result<std::vector<cluster::JobId>> result;
    };
    Delivery delivery;
    std::vector<cluster::JobId> ended;  // jobs
    std::vector<cluster::NodeName> lost;
    std::vector<Answer> answers;
    std::vector<Query> queries;
  };

  // `new_cluster_id` is for a store that has none yet. `boot` names the start of the machine whose steady
  // clock it is: who goes on with the store on the same one knows how the date was set meanwhile.
  Turns(store::Store& store, Clock clock, std::string new_cluster_id = "",
        const cluster::Retention& keep = {}, std::string boot = "");
  Turns(const Turns&) = delete;
  Turns& operator=(const Turns&) = delete;

  // Before the first turn. Without it, jobs that ask for secrets are held.
  void open_secrets_with(OpenSecret open) { open_secret_ = std::move(open); }
  // Before the first turn. Without it the ranks of a gang meet without a secret.
  void give_attempts(AttemptSecret secret) { outbox_.give_attempts(std::move(secret)); }
  // Reads the store; there are no turns before that has worked.
  Result<> load();

  // `watched`: somebody wants to hear of changes; their JSON is made only then.
  Outcome turn(std::vector<Item> items, bool watched);
  // How long the next turn may be put off if nothing happens.
  Duration patience() const;
  // Something that agents said was dropped before it came here: the next turn asks them again.
  void miss() { resync_ = true; }
  // Of one node alone.
  void miss(const std::string& node) { outbox_.add({cluster::AskHello{node}}); }
  // When all that a turn has brought has gone out: the store tidies up from time to time.
  void rest();

  const cluster::State& state() const { return state_; }
  // False after a failed commit, until the store could be read: the state may be ahead of it.
  bool state_is_stored() const { return state_is_stored_; }
  void answer(const Query& query) {
    health_.state_is_stored = state_is_stored_;
    query(state_, health_);
  }
  const wire::StoreHealth& health() const { return health_; }
  const cluster::Retention& keep() const { return keep_; }

 private:
  // The date that this goes by, and the same on the steady clock.
  Instant date() { return clock_().steady + clock_offset_; }
  void look_at_clock();
  void keep_leases();
  void hear(Instant awake_at);
  bool deaf() const;
  void start_leases_anew();
  cluster::Retention kept_now() const;
  void probe();
  Result<> authorize(Item& item, people::Name& who) const;
  Result<> may_go_on(bool frees_room) const;
  // True if it is one of those that work on a full disk, too, and has changed something.
  bool step(Outcome& outcome, cluster::Effects& effects, Item& item);
  void schedule(cluster::Effects& effects);
  // What became of a turn's changes.
  enum class Commit { done, nothing_changed, landed, not_known };
  Commit commit(const cluster::Effects& effects, bool frees_room);
  std::vector<store::Write> writes_of(const cluster::Effects& effects) const;
  Delivery delivery(const cluster::Effects& effects, bool watched, bool jobs_later);
  void refuse(Outcome& outcome, Commit commit);
  void note_refusal(const Item& item, const people::Name& who, const Error& why);
  void write_down(const Item& item, audit::Entry note, const Result<std::vector<cluster::JobId>>& reply,
                  bool has_changed);
  bool is_log_full() const;
  bool has_room_for_lines() const { return health_.ok && !is_log_full(); }
  void write_audit(cluster::Effects& effects);
  void tell_all_members(Delivery& delivery) const;
  Result<> read_store();
  Result<> name_cluster();
  Result<> renew();

  store::Store& store_;
  Clock clock_;
  std::string new_cluster_id_;
  const cluster::Retention keep_;
  const std::string boot_;
  Duration clock_offset_{};  // of the date from the steady clock, as it was when the date was last set
  // Of this turn, or of the last one; all times below are on the steady clock.
  Instant now_;
  Instant steady_;
  cluster::State state_;
  bool state_is_stored_ = true;
  std::uint64_t revision_ = 0;
  wire::StoreHealth health_;
  bool resync_ = false;
  bool members_anew_ = false;  // the state was read again
  Outbox outbox_;
  OpenSecret open_secret_;
  std::vector<Withheld> withheld_;  // by the last turn: the next one says so to the state
  Scribe scribe_;
  // As its files say: whatever becomes of the turn in which that was heard, no number of a line is used
  // twice.
  cluster::AuditHead audit_found_;
  std::set<cluster::JobId> to_show_;  // their changes are stored and were not told to those who watch
  std::size_t ranks_placed_ = 0;      // in the turn's pass
  std::optional<Instant> last_turn_;  // nothing before the first
  // All that was heard until then has had its turn; nothing where the loop that hears is part of this one.
  std::optional<Instant> awake_at_;
  Instant next_tick_;
  Instant next_probe_;
  Instant next_pass_;
  Instant next_rest_;
  Instant jumped_at_;  // the date was set, or this loop has stood still; or the first turn was then
  bool pass_wanted_ = false;
  bool all_doors_ = false;  // what was told of tokens may not be what is stored: all of it is told again
};

}  // namespace tutti::driver
