#include "node/agent/agent.hpp"

#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "base/log/log.hpp"
#include "node/agent/folder_lock.hpp"
#include "node/agent/logs.hpp"
#include "node/agent/shim_processes.hpp"
#include "node/agent/shipped.hpp"
#include "node/keeper/keeper.hpp"

namespace tutti::agent {
namespace {

constexpr Duration redial_min = 100ms;
// Well below a lease: a controller that is back hears every node before it would give one up.
constexpr Duration redial_max = 1s;
static_assert(redial_max * 3 <= cluster::lease);

class Agent {
 public:
  explicit Agent(const AgentOptions& options, std::function<void()> joined)
      : options_(options),
        joined_(std::move(joined)),
        shipped_(options.controller, options.token, options.folder),
        attic_({.checkpoints = options.checkpoints,
                .logs_bytes_max = options.keep_logs,
                .logs_age_max = options.keep_logs_age,
                .checkpoints_age_max = options.keep_checkpoints_age}),
        processes_(loop_, {options.name, options.folder, options.checkpoints, options.tutti_program},
                   shipped_, attic_,
                   {.exited = [this](const auto& key, const auto& status) { keeper_.exited(key, status); },
                    .prepared = [this](auto job, auto attempt,
                                       const auto& folder) { keeper_.prepared(job, attempt, folder); }}),
        keeper_(
            {options.name, options.location, options.address, ::getpid(), options.inventory, {}}, processes_,
            [this](const wire::AgentMessage& message) { send(message); },
            [this](const keeper::RankKey& key) { logs_.flush(key); }),
        logs_(loop_,
              {.folders = [this](auto job, auto attempt) { return processes_.log_folders(job, attempt); },
               .running = [this](const auto& key) { return keeper_.running(key); },
               .send = [this](const wire::AgentMessage& message) { send(message); }}) {}

  Result<> run() {
    const auto lock = FolderLock::take(options_.folder);
    if (!lock) return lock.error();
    if (auto adopted = keeper_.adopt(); !adopted) return adopted;
    const auto signals = loop_.on_signals({SIGTERM, SIGINT}, [this](int) { loop_.stop(); });
    const auto heartbeat = loop_.every(cluster::heartbeat_every, [this] { keeper_.heartbeat(); });
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
    keeper_.say_hello();
    joined_();
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

  void on(const wire::StartRanks& start) { keeper_.on(start); }
  void on(const wire::EndRanks& end) { keeper_.on(end); }
  void on(const wire::ForgetRanks& forget) { keeper_.on(forget); }
  void on(const wire::ReadLogs& read) { logs_.read(read); }
  void on(const wire::StopLogs& stop) { logs_.stop(stop.stream); }
  void on(const wire::Resync&) { keeper_.say_hello(); }

  const AgentOptions& options_;
  std::function<void()> joined_;
  net::Loop loop_;
  Shipped shipped_;
  Attic attic_;
  ShimProcesses processes_;
  keeper::Keeper keeper_;
  Logs logs_;
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
