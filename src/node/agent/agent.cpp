#include "node/agent/agent.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>
#include <set>
#include <utility>

#include "base/clock/clock.hpp"
#include "base/files/files.hpp"
#include "base/log/end_in_time.hpp"
#include "base/log/log.hpp"
#include "node/agent/device_watch.hpp"
#include "node/agent/folder_lock.hpp"
#include "node/agent/health.hpp"
#include "node/agent/isolation.hpp"
#include "node/agent/lane.hpp"
#include "node/agent/logs.hpp"
#include "node/agent/membership.hpp"
#include "node/agent/mount_table.hpp"
#include "node/agent/moved_folder.hpp"
#include "node/agent/renewal.hpp"
#include "node/agent/shim_processes.hpp"
#include "node/agent/shipped.hpp"
#include "node/devices/order.hpp"
#include "node/keeper/keeper.hpp"
#include "node/rank/account.hpp"
#include "node/rank/checkpoint_root.hpp"
#include "node/rank/launch.hpp"
#include "node/rank/leftovers.hpp"
#include "node/rank/process.hpp"

namespace tutti::agent {
namespace {

// Processes of ranks that have locked the folder in turns, each until it has gone.
constexpr int rank_holders_max = 100;
constexpr int holder_dying_ms_max = 2'000;
constexpr Duration redial_min = 100ms;
// Well below a lease: a controller that is back hears every node before it would give one up.
constexpr Duration redial_max = 1s;
// The files of TLS are waited for so long, before those that were read last are used.
constexpr Duration credentials_time_max = 500ms;
// Another agent has the name: there is no hurry, and both logs get a line each time.
constexpr Duration redial_refused = 5s;
static_assert(redial_max * 3 <= cluster::lease);
// Reports of ranks that follow another one wait so long, and so many of them are one message.
constexpr Duration reports_together = 1ms;
constexpr std::size_t reports_together_max = 1'000;
static_assert(reports_together_max * (wire::detail_bytes_max + 100) < wire::message_bytes_max);
// Of logs, what may wait in front of the network: beyond it, they wait on the disk.
constexpr std::size_t log_bytes_under_way_max = std::size_t{1} << 20;

// What it says of itself, without its ranks.
cluster::Hello self_of(const AgentOptions& options) {
  cluster::Hello self{options.name, options.location, options.address, ::getpid(), options.inventory, {}};
  self.keeps_apart = options.ranks_as_users;
  self.keeps = cluster::NodeKeeps{.logs_max = options.keep_logs,
                                  .logs_ranks_max = options.keep_logs_ranks,
                                  .logs_age_max = options.keep_logs_age,
                                  .checkpoints_age_max = options.keep_checkpoints_age};
  return self;
}

class Agent {
 public:
  Agent(const AgentOptions& options, std::function<void()> joined, const EndInTime& end)
      : options_(options),
        joined_(std::move(joined)),
        end_(end),
        shipped_(options.controller, options.token, options.folder),
        attic_(loop_,
               {.checkpoints = options.checkpoints,
                .own_checkpoints =
                    !options.shared_checkpoints && options.checkpoints == options.folder + "/checkpoints",
                .folder = options.folder,
                .removed = options.folder + "/removed",
                .logs_bytes_max = options.keep_logs,
                .logs_ranks_max = options.keep_logs_ranks,
                .logs_age_max = options.keep_logs_age,
                .checkpoints_age_max = options.keep_checkpoints_age},
               [this](const std::string& cluster, std::uint64_t job) { keeper_.saved(cluster, job); }),
        processes_(
            loop_,
            {options.name, options.folder, options.checkpoints, options.tutti_program,
             options.shared_checkpoints, files::raise_open_files(), options.ranks_as_users,
             options.users_file, options.people},
            shipped_, attic_,
            {.started = [this](const auto& key, const auto& outcome) { keeper_.started(key, outcome); },
             .exited = [this](const auto& key, const auto& status) { exited(key, status); },
             .prepared = [this](auto job, auto attempt, const auto& folder,
                                auto hindrance) { keeper_.prepared(job, attempt, folder, hindrance); },
             .seen = [this](const auto& key, auto sight) { keeper_.seen(key, std::move(sight)); },
             .went_aside = [this](const auto& outcome) { keeper_.went_aside(outcome); }}),
        keeper_(self_of(options), processes_, [this](const wire::AgentMessage& message) { send(message); }),
        logs_(loop_, processes_.ranks_folder(),
              {.running = [this](auto job, auto attempt) { return running(job, attempt); },
               .room = [this] { return socket_ && socket_->later_bytes() < log_bytes_under_way_max; },
               .send =
                   [this](const wire::AgentMessage& message) {
                     if (socket_) socket_->send_later(wire::encode(message));
                   }}),
        notes_(loop_, 1),
        elsewhere_(loop_, 1),
        credentials_lane_(loop_, 1),
        renewal_(options.controller, options.folder, loop_),
        device_watch_(loop_, options.look_at_devices, [this](const auto& devices) { found(devices); }) {}

  Result<> run() {
    if (auto here = check_no_ranks_elsewhere(options_.folder); !here) return here;
    if (auto made = close_to_others(); !made) return made;
    const auto lock = take_folder();
    if (!lock) return lock.error();
    if (lock->lost_by() != 0)
      log::warning(
          "the agent before this one, pid {}, has not ended in order: it was killed, for want of memory "
          "perhaps, or the machine stopped",
          lock->lost_by());
    auto identity = folder_identity(options_.folder);
    if (!identity) return std::move(identity).error();
    auto membership = read_membership(options_.folder);
    if (!membership) return std::move(membership).error();
    processes_.belong_to(*membership);
    keeper_.introduce(*identity, place_of(options_.folder), *membership);
    if (auto adopted = keeper_.adopt(); !adopted) return adopted;
    attic_.keep_aside();
    if (const auto* rules = processes_.isolation()) keeper_.set_lacks(rules->lacks_in_a_line());
    recall_devices();
    look_for_ranks_of_others();
    look_for_shared_disk();
    const auto signals = loop_.when_asked_to_end([this](int signal) {
      log::warning("this agent ends: {}; ranks run on", ::strsignal(signal));
      end_.begin();
      loop_.stop();
    });
    Health health(options_.folder);
    keeper_.set_illness(health.illness());
    const auto heartbeat = loop_.every(cluster::heartbeat_every, [this, &health] {
      const std::string illness = health.illness();
      keeper_.set_illness(illness.empty() ? processes_.illness() : illness);
      keeper_.heartbeat();
    });
    renewal_.start();
    take_credentials(net::Credentials::read(options_.controller));
    dial();
    loop_.run();
    shipped_.finish();
    return {};
  }

 private:
  // A rank that holds the lock of its own agent's folder would keep that from its node for as long as it
  // runs: it is ended for that.
  Result<FolderLock> take_folder() {
    for (int tries = 0;; ++tries) {
      auto lock = FolderLock::take(options_.folder);
      const auto holder = lock ? std::nullopt : FolderLock::holder_of(options_.folder);
      const bool is_ranks =
          holder && *holder > 0 && rank::is_of_ranks_of(*holder, options_.name, options_.folder);
      if (!is_ranks || tries == rank_holders_max) return lock;
      log::warning("process {} of a rank has locked {}, and is killed", *holder, options_.folder);
      const auto pidfd = rank::open_pidfd(*holder);
      ::kill(*holder, SIGKILL);
      pollfd gone{pidfd ? pidfd->get() : -1, POLLIN, 0};
      ::poll(&gone, 1, holder_dying_ms_max);
    }
  }

  // What this agent and its shims write is nobody else's; ranks pass through what is above it.
  Result<> close_to_others() const {
    if (!options_.ranks_as_users) return {};
    if (auto fine = IsolationRules::check_places(options_.folder, options_.checkpoints); !fine) return fine;
    ::umask(rank::rank_umask);
    auto made = files::make_folders(std::filesystem::path(options_.folder).parent_path().string());
    ::umask(0077);
    return made;
  }

  void exited(const keeper::RankKey& key, const cluster::RankStatus& status) {
    keeper_.exited(key, status);
    if (status.exit_code != 0) device_watch_.look_soon();
  }

  void look_for_ranks_of_others() {
    elsewhere_.run([folder = options_.folder]() -> Lane::Then {
      return [told = ranks_without_agent(folder)] {
        for (const std::string& text : told) log::warning("{}", text);
      };
    });
  }

  // Said and not refused: a node whose disk is away for a while joins, and its ranks are looked after. The
  // disk itself is not asked, which may not answer.
  void look_for_shared_disk() {
    if (options_.ranks_as_users) look_who_may_change_checkpoints();
    if (!options_.shared_checkpoints) return;
    const std::string told = not_shared(mount_table(), options_.checkpoints);
    if (!told.empty()) log::warning("{}", told);
  }

  void look_who_may_change_checkpoints() {
    elsewhere_.run([folder = options_.checkpoints]() -> Lane::Then {
      return [told = rank::checkpoints_in_other_hands(folder)] {
        if (!told.empty()) log::warning("{}", told);
      };
    });
  }

  // Ranks that run hold devices by the index that these had when the agent before this one looked.
  void recall_devices() {
    cluster::Inventory inventory = options_.inventory;
    inventory.watch_max = processes_.watch_max();
    if (!keeper_.ranks().empty())
      inventory.devices = devices::keep_order(read_devices(options_.folder), inventory.devices);
    if (auto written = write_devices(options_.folder, inventory.devices); !written)
      log::warning("{}", written.error().text());
    keeper_.has(inventory);
  }

  // Written down before it is told: no rank gets an index that the next agent would not know.
  void set_inventory(const cluster::Inventory& inventory) {
    notes_.run([this, inventory, folder = options_.folder]() -> Lane::Then {
      const auto written = write_devices(folder, inventory.devices);
      return [this, inventory, why = written ? "" : written.error().text()] {
        if (!why.empty()) log::warning("{}", why);
        keeper_.has(inventory);
      };
    });
  }

  void found(const std::vector<cluster::Device>& devices) {
    if (notes_.under_way() != 0) return;  // what was found before is still being written down
    cluster::Inventory inventory = keeper_.inventory();
    inventory.devices = devices::keep_order(inventory.devices, devices);
    if (inventory == keeper_.inventory()) return;
    for (std::size_t at = 0; at < inventory.devices.size(); ++at) {
      const auto& device = inventory.devices[at];
      if (device.silent) log::warning("device {} ({}) does not answer", at, device.uuid);
    }
    const auto silent = std::count_if(inventory.devices.begin(), inventory.devices.end(),
                                      [](const cluster::Device& device) { return device.silent; });
    log::warning("the devices of this node have changed: of {} there are {} silent", inventory.devices.size(),
                 silent);
    set_inventory(inventory);
  }

  // The files of TLS lie on a disk that may not answer: then those that were read before are as good.
  void dial() {
    waits_for_credentials_ = true;
    timer_ = loop_.after(credentials_time_max, [this] { dial_now(); });
    if (credentials_lane_.under_way() != 0) return;
    credentials_lane_.run(
        [this, target = options_.controller]() -> Lane::Then {
          auto read = net::Credentials::read(target);
          return [this, read = std::move(read)]() mutable {
            take_credentials(std::move(read));
            if (waits_for_credentials_) dial_now();
          };
        },
        [](const std::string& why) { log::warning("cannot read the certificates: {}", why); });
  }

  void take_credentials(Result<net::Credentials> read) {
    if (!read) {
      const std::string& remedy = read.error().remedy();
      log::warning("cannot read the certificates: {}{}{}", read.error().text(), remedy.empty() ? "" : "; ",
                   remedy);
    }
    if (read) credentials_ = std::move(*read);
  }

  void dial_now() {
    waits_for_credentials_ = false;
    timer_.reset();
    if (!credentials_) return redial();
    net::dial(loop_, options_.controller, *credentials_, "/api/v1/agent", options_.token,
              [this](Result<std::shared_ptr<net::Socket>> socket) {
                if (socket) return connected(*socket);
                const std::string& remedy = socket.error().remedy();
                log::warning("cannot join: {}{}{}", socket.error().text(), remedy.empty() ? "" : "; ",
                             remedy);
                redial();
              });
  }

  void redial() {
    delay_ = std::exchange(refused_, false) ? redial_refused : std::min<Duration>(delay_ * 2, redial_max);
    timer_ = loop_.after(delay_, [this] { dial(); });
  }

  void connected(const std::shared_ptr<net::Socket>& socket) {
    socket_ = socket;
    socket->on_message = [this](const std::string& frame) { receive(frame); };
    socket->on_close = [this](const std::string& why) {
      log::warning("lost the controller: {}; ranks run on", why);
      socket_.reset();
      reports_ = {};
      logs_.stop_all();
      redial();
    };
    keeper_.say_hello();
  }

  // What cannot be sent now is in the Hello of the next connection.
  void send(const wire::AgentMessage& message) {
    if (const auto* reports = std::get_if<wire::RankReports>(&message)) {
      reports_.ranks.insert(reports_.ranks.end(), reports->ranks.begin(), reports->ranks.end());
      if (reports_timer_ && reports_.ranks.size() < reports_together_max) return;
      return send_reports();
    }
    send_reports();
    if (!socket_) return;
    if (const auto* beat = std::get_if<wire::Heartbeat>(&message)) {
      wire::Heartbeat stamped = *beat;
      stamped.sent = steady_time();
      return socket_->send(wire::encode(wire::AgentMessage(std::move(stamped))));
    }
    socket_->send(wire::encode(message));
  }

  static Duration steady_time() {
    return std::chrono::duration_cast<Duration>(SteadyClock::now().time_since_epoch());
  }

  // The first goes at once, and what follows closely goes together: a large gang that starts or ends is no
  // flood, and a single rank waits for nobody.
  void send_reports() {
    reports_timer_.reset();
    if (reports_.ranks.empty()) return;
    reports_timer_ = loop_.after(reports_together, [this] { send_reports(); });
    wire::RankReports together = std::exchange(reports_, {});
    together.sent = steady_time();
    if (socket_) socket_->send(wire::encode(wire::AgentMessage(together)));
  }

  std::set<std::int32_t> running(cluster::JobId job, std::int32_t attempt) const {
    std::set<std::int32_t> ranks;
    for (auto at = keeper_.ranks().lower_bound({job, attempt, 0});
         at != keeper_.ranks().end() && at->first.job == job && at->first.attempt == attempt; ++at) {
      if (at->second.state != cluster::RankState::exited) ranks.insert(at->first.rank);
    }
    return ranks;
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
  void on(const wire::LogCredit& credit) { logs_.credit(credit); }
  void on(const wire::Resync&) { keeper_.say_hello(); }
  void on(const wire::Welcome& welcome) {
    delay_ = redial_min;
    keeper_.on(welcome);
    joined_();
  }
  void on(const wire::Notice& notice) {
    if (!notice.refused) return log::warning("the controller says: {}", notice.text);
    log::error("the controller refuses this agent: {}; it goes on trying", notice.text);
    refused_ = true;
  }
  void on(const wire::RenewCertificate&) { renewal_.renew_soon(); }
  void on(const wire::Echo&) {}  // this agent asks for none

  const AgentOptions& options_;
  std::function<void()> joined_;
  const EndInTime& end_;
  net::Loop loop_;
  Shipped shipped_;
  Attic attic_;
  ShimProcesses processes_;
  keeper::Keeper keeper_;
  Logs logs_;
  Lane notes_;      // which device has which index
  Lane elsewhere_;  // folders of other agents, and what is above this one's for checkpoints
  Lane credentials_lane_;
  Renewal renewal_;
  DeviceWatch device_watch_;
  std::shared_ptr<net::Socket> socket_;
  wire::RankReports reports_;  // that wait to go out together
  std::shared_ptr<net::Loop::Handle> reports_timer_;
  std::shared_ptr<net::Loop::Handle> timer_;
  std::optional<net::Credentials> credentials_;
  bool waits_for_credentials_ = false;
  Duration delay_ = redial_min;
  bool refused_ = false;  // on the connection of now
};

}  // namespace

Result<> run_agent(const AgentOptions& options, const std::function<void()>& joined) {
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow any more (ulimit -f) is as a disk that is full
  rank::lower_oom_score(rank::spared_oom_score);  // and that of its shims
  const EndInTime end("agent");
  return Agent(options, joined, end).run();
}

}  // namespace tutti::agent
