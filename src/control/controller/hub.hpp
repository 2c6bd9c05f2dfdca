// Who is connected: agents by node, readers of events and of logs. Everything here runs on the network loop.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "control/controller/audience.hpp"
#include "control/controller/core.hpp"
#include "control/controller/gate.hpp"
#include "control/driver/hearing.hpp"
#include "control/driver/listener.hpp"
#include "control/wire/messages.hpp"
#include "net/http/http.hpp"
#include "net/http/loop.hpp"

namespace tutti::controller {

struct LogRequest {
  cluster::JobId job;
  std::int32_t rank = -1;
  bool follow = false;
  std::int64_t tail_lines = 0;  // 0: from the beginning; -1: only what comes
};

// What an agent has shown over TLS. One with a certificate may speak for the node in it and for no other.
struct Papers {
  std::string node = {};     // "": it has shown none, and may be any
  std::string key = {};      // of the certificate
  std::string refused = {};  // why it may not speak at all; "": it may
  bool is_behind = false;    // it should have another certificate
};

class Hub {
 public:
  using Clock = std::function<Instant()>;

  // `clock` goes forward and is nobody's time of day; null: the system's steady one.
  Hub(net::Loop& loop, Core& core, Clock clock = nullptr);
  Hub(const Hub&) = delete;
  Hub& operator=(const Hub&) = delete;

  // After the core has started, before anybody connects.
  void start();
  // For these nodes nobody speaks without a certificate.
  void protect(std::function<bool(const std::string& node)> is_protected) {
    listener_.protect(std::move(is_protected));
  }

  // Nodes whose ranks do not run as the accounts of their users take no work.
  void demand_isolation() { listener_.demand_isolation(); }

  // An agent's socket; its first message must be a Hello.
  void add_agent(const std::shared_ptr<net::Socket>& socket, std::string remote, Papers papers = {});
  // Server-sent events of every change. Where too many follow already, it and the next are answered so.
  void add_watcher(net::Exchange& exchange, const Identity& by);
  // The logs of a job, as events `log` {rank, text}, `job` and `note`.
  void add_log_reader(net::Exchange& exchange, const LogRequest& request, const Identity& by);

  // How many may follow. Before anybody does.
  void limit_audience(const AudienceLimits& limits) { audience_.limit(limits); }

  void deliver(driver::Delivery delivery);
  // Whoever follows with a token that has expired by this date is cut off.
  void shut_expired(Instant date);
  // Nodes with a certificate get another one now.
  void ask_to_renew();
  // On this loop, from any thread.
  void post(std::function<void()> task) { loop_.post(std::move(task)); }

  // Whether this loop hears the agents: it has read what has come. Asked again and again. Those that are
  // excused are told to be there.
  bool is_awake();

 private:
  struct Agent {
    std::shared_ptr<net::Socket> socket;
    std::string remote;
    driver::Connection connection = 0;
    Instant heard_at;  // on the hub's own clock
    Papers papers = {};
  };
  // What one node sends of one attempt's logs.
  struct Feed {
    std::int64_t window_bytes = 0;     // what the node may have sent and the reader not taken
    std::int64_t owed_bytes = 0;       // taken, and not told to the node yet
    std::int64_t unwritten_bytes = 0;  // here, and not taken yet: then the reader is waited for, not the node
    Instant heard_at;
  };
  using FeedKey = std::pair<std::string, std::int32_t>;  // node, attempt
  struct LogReader {
    std::uint64_t id = 0;
    LogRequest request;
    people::Credential by;
    people::Caller caller;  // as it was when he came
    std::shared_ptr<net::Stream> stream;
    std::set<FeedKey> asked;
    std::map<FeedKey, Feed> open;  // have not sent all
    bool begun = false;            // it knows where the job stands
    bool follows = false;          // the job still runs
    // Asked for, and nobody speaks for the node now: they come when it is back, unless the job ends or goes
    // on elsewhere before.
    std::set<FeedKey> unreached = {};
  };

  struct Watcher {
    people::Credential credential;
    people::Caller caller;  // as it was when he came
    std::shared_ptr<net::Stream> stream;
  };

  // Of a job, what its reader has to know.
  struct Standing {
    // Of the ranks asked for, on one node.
    struct Ranks {
      std::int32_t have_run = 0;
      bool may_have_run = false;  // one at least: none is there that could not even be started
    };
    std::string json;
    bool finished = false;
    std::int32_t attempt = 0;                 // whose logs there are; -1: none
    std::map<std::string, Ranks> nodes = {};  // and where
  };
  static Standing standing_of(const cluster::State& state, const cluster::Job& job, std::int32_t rank);

  // True if one more may follow, who then counts until unseat(); else it is answered.
  bool seat(net::Exchange& exchange, const Follower& who);
  static void refuse_seat(net::Exchange& exchange, int status, const char* why);
  void unseat(const Follower& who);
  // Those of one job: thousands may read others, and changes come by the thousand.
  template <class Visit>
  void visit_readers(cluster::JobId job, Visit visit);
  // Whoever follows with a token that may something else now, or nothing, comes again.
  void shut(const people::DoorChanges& changes);
  template <class IsShut>
  void close_streams(IsShut is_shut);
  void tell_readers(const driver::Delivery& delivery);
  void tell_watchers(const driver::Delivery& delivery);
  void receive(Agent& agent, const std::string& frame);
  void pass_on(const std::string& node, const wire::AgentMessage& message);
  static void tell(const Agent& agent, const wire::ControllerMessage& message);
  void drop(const Agent& agent, const std::string& why);
  // Somebody wanted to be this node: for the audit log.
  void note_refusal(const Agent& agent, const std::string& node, const std::string& why);
  // It hears why, and nothing that it says any more is heard.
  static void send_away(const Agent& agent, const std::string& why);
  // Whoever has a certificate that is good no more.
  void send_away(const driver::Delivery& delivery);
  // Null if it is closed.
  Agent* agent_of(driver::Connection connection) const;
  // Null if nobody speaks for the node now.
  Agent* speaker(const std::string& node) const;
  void restart_followers(const std::string& node);
  // Of the reader's job. False if too many ask already.
  bool ask_where_it_stands(std::uint64_t id, const std::string& address, const LogRequest& request,
                           const people::Credential& by);
  void begin_reading(LogReader& reader, const Standing& job);
  void cut_off(std::uint64_t id);
  // `nodes` are asked at once, and share what the reader may have waiting here. `ranks` are known to have run
  // there, 0: not known.
  void ask_for_logs(LogReader& reader, const FeedKey& key, std::int64_t tail_lines, std::size_t nodes,
                    std::int32_t ranks = 0);
  void pass_on(const std::string& node, const wire::LogChunk& chunk);
  void took(std::uint64_t reader, const FeedKey& key, std::int64_t bytes);
  void end_feed(const std::string& node, const wire::LogEnd& end);
  void end_feeds(const std::string& node);
  // What nobody can send now is missing, unless it may still come.
  static void miss(LogReader& reader, const FeedKey& key);
  // Of attempts before this one, what was to come and will not.
  static void tell_missed(LogReader& reader, std::int32_t attempt);
  // A node that does not answer is not waited for.
  void look_at_feeds();
  void finish_reading(LogReader& reader);
  void end_reading(std::uint64_t reader);
  void close_if_done(LogReader& reader);

  net::Loop& loop_;
  Core& core_;
  Clock clock_;
  std::shared_ptr<net::Loop::Handle> awake_;
  driver::Hearing hearing_;
  driver::Listener listener_;
  std::map<driver::Connection, std::shared_ptr<Agent>> agents_;
  std::map<std::uint64_t, Watcher> watchers_;
  std::map<std::uint64_t, LogReader> readers_;
  std::map<cluster::JobId, std::set<std::uint64_t>> readers_of_;  // by job
  Audience audience_;                                             // both of them
  std::uint64_t next_id_ = 1;
  std::shared_ptr<net::Loop::Handle> look_timer_;  // while somebody reads
  Instant looked_at_;
  Instant told_alive_at_;
};

}  // namespace tutti::controller
