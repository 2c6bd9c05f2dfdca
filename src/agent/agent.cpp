#include "agent/agent.hpp"

#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <thread>

#include "agent/folder_lock.hpp"
#include "agent/logs.hpp"
#include "agent/ranks.hpp"
#include "agent/shipped.hpp"
#include "log/log.hpp"

namespace tutti::agent {
namespace {

constexpr Duration redial_min = 100ms;
// Well below a lease: a controller that is back hears every node before it would give one up.
constexpr Duration redial_max = 1s;
static_assert(redial_max * 3 <= cluster::lease);

// What ranks inherit from the agent; everything else comes from the job.
constexpr std::array<const char*, 10> inherited{"PATH",   "HOME", "USER",   "LOGNAME",         "LANG",
                                                "LC_ALL", "TZ",   "TMPDIR", "LD_LIBRARY_PATH", "SHELL"};

void set(std::map<std::string, std::string>& env, const std::string& entry) {
  const auto equals = entry.find('=');
  env[entry.substr(0, equals)] = equals == std::string::npos ? "" : entry.substr(equals + 1);
}

class Agent {
 public:
  explicit Agent(const AgentOptions& options, std::function<void()> joined)
      : options_(options),
        joined_(std::move(joined)),
        ranks_(
            loop_, options.folder + "/ranks", options.tutti_program,
            [this](const cluster::RankReport& report) { send(report); },
            [this](const RankKey& key) { logs_.flush(key); }),
        logs_(loop_, ranks_, [this](const wire::AgentMessage& message) { send(message); }),
        shipped_(options.controller, options.token, options.folder) {}

  Result<> run() {
    const auto lock = FolderLock::take(options_.folder);
    if (!lock) return lock.error();
    if (auto adopted = ranks_.adopt(); !adopted) return adopted;
    const auto signals = loop_.on_signals({SIGTERM, SIGINT}, [this](int) { loop_.stop(); });
    const auto heartbeat = loop_.every(cluster::heartbeat_every, [this] {
      ranks_.look_at_sentences();
      send(wire::Heartbeat{});
    });
    dial();
    loop_.run();
    shipped_.finish();
    return {};
  }

 private:
  void dial() {
    net::dial(loop_, options_.controller, "/api/v1/agent", options_.token,
              [this](Result<std::shared_ptr<net::Socket>> socket) {
                if (socket) return connected(*socket);
                log::warning("cannot join: {}", socket.error().text());
                redial();
              });
  }

  void redial() {
    delay_ = std::min<Duration>(delay_ * 2, redial_max);
    timer_ = loop_.after(delay_, [this] { dial(); });
  }

  void connected(const std::shared_ptr<net::Socket>& socket) {
    delay_ = redial_min;
    socket_ = socket;
    socket->on_message = [this](const std::string& frame) { receive(frame); };
    socket->on_close = [this](const std::string& why) {
      log::warning("lost the controller: {}; ranks run on", why);
      socket_.reset();
      logs_.stop_all();
      redial();
    };
    say_hello();
    joined_();
  }

  void say_hello() {
    send(cluster::Hello{options_.name, options_.location, options_.address, ::getpid(), options_.inventory,
                        ranks_.reports()});
  }

  // What cannot be sent now is in the Hello of the next connection.
  void send(const wire::AgentMessage& message) {
    if (socket_) socket_->send(wire::encode(message));
  }

  void receive(const std::string& frame) {
    auto message = wire::decode_controller_message(frame);
    if (!message) return log::error("from the controller: {}", message.error().text());
    std::visit([this](const auto& body) { on(body); }, *message);
  }

  void on(const wire::StartRanks& start) {
    const bool all_known =
        std::all_of(start.ranks.begin(), start.ranks.end(), [&](const wire::StartRank& rank) {
          return ranks_.knows({start.job, start.attempt, rank.rank});
        });
    if (start.sync.empty() || all_known) return start_all(start, start.workdir);
    shipped_.prepare(start.sync, start.job.text() + "." + std::to_string(start.attempt),
                     [this, start](const Result<std::string>& folder) {
                       loop_.post([this, start, folder] {
                         if (folder) return start_all(start, *folder);
                         for (const auto& rank : start.ranks)
                           ranks_.fail({start.job, start.attempt, rank.rank}, folder.error().text());
                       });
                     });
  }

  void start_all(const wire::StartRanks& start, const std::string& workdir) {
    for (const wire::StartRank& rank : start.ranks) {
      const RankKey key{start.job, start.attempt, rank.rank};
      rank::RankSpec spec;
      spec.command = start.command;
      spec.env = environment(start, rank);
      spec.workdir = workdir.empty() ? "/" : workdir;
      spec.cgroup = "tutti-" + options_.name + "-" + start.job.text() + "." + std::to_string(start.attempt) +
                    "." + std::to_string(rank.rank);
      spec.cpus = start.cpus;
      spec.memory = start.memory;
      spec.grace = start.grace;
      spec.output = rank.output;
      ranks_.start(key, spec);
    }
  }

  std::vector<std::string> environment(const wire::StartRanks& start, const wire::StartRank& rank) {
    std::map<std::string, std::string> env;
    for (const char* name : inherited) {
      if (const char* value = std::getenv(name); value != nullptr) env[name] = value;
    }
    const std::string checkpoints = options_.checkpoints + "/" + start.job.text();
    std::error_code ignored;
    std::filesystem::create_directories(checkpoints, ignored);
    env["TUTTI_CHECKPOINT_DIR"] = checkpoints;
    for (const auto& entry : start.env) set(env, entry);
    for (const auto& entry : rank.env) set(env, entry);
    std::vector<std::string> entries;
    entries.reserve(env.size());
    for (const auto& [name, value] : env) entries.push_back(name + "=" + value);
    return entries;
  }

  void on(const wire::EndRanks& end) { ranks_.end(end.job, end.attempt); }
  void on(const wire::ForgetRanks& forget) {
    ranks_.forget(forget.job, forget.attempt);
    shipped_.remove(forget.job.text() + "." + std::to_string(forget.attempt));
  }
  void on(const wire::ReadLogs& read) { logs_.read(read); }
  void on(const wire::StopLogs& stop) { logs_.stop(stop.stream); }
  void on(const wire::Resync&) { say_hello(); }

  const AgentOptions& options_;
  std::function<void()> joined_;
  net::Loop loop_;
  Ranks ranks_;
  Logs logs_;
  Shipped shipped_;
  std::shared_ptr<net::Socket> socket_;
  std::shared_ptr<net::Loop::Handle> timer_;
  Duration delay_ = redial_min;
};

}  // namespace

Result<> run_agent(const AgentOptions& options, const std::function<void()>& joined) {
  ::signal(SIGPIPE, SIG_IGN);
  return Agent(options, joined).run();
}

}  // namespace tutti::agent
