#include "common/fleet.hpp"

#include <sys/resource.h>

#include <chrono>
#include <set>
#include <utility>

#include "control/wire/messages.hpp"

namespace tutti::bench {
namespace {

constexpr std::size_t dials_at_once = 32;
constexpr Duration slice = 10ms;  // between two groups of heartbeats

std::uint64_t now_ns() {
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

void allow_many_files() {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  static_cast<void>(::setrlimit(RLIMIT_NOFILE, &files));
}

}  // namespace

class Fleet::Agent {
 public:
  Agent(Fleet& fleet, int number) : fleet_(fleet), name_("node" + std::to_string(number)) {}

  void connect(const std::shared_ptr<net::Socket>& socket) {
    socket_ = socket;
    socket->on_message = [this](const std::string& frame) { receive(frame); };
    socket->on_close = [this](const std::string&) {
      socket_.reset();
      --fleet_.connected_;
    };
    ++fleet_.connected_;
    say_hello();
  }

  void beat() { send(wire::Heartbeat{"", now_ns()}); }

 private:
  using Rank = std::tuple<cluster::JobId, std::int32_t, std::int32_t>;

  void say_hello() {
    cluster::Hello hello{name_, "site/pod" + name_.substr(4, 1), "127.0.0.1", 1, {}, {}};
    for (int gpu = 0; gpu < fleet_.options_.gpus; ++gpu)
      hello.inventory.devices.push_back({"H100", gib(80), "uuid"});
    hello.inventory.cpus = fleet_.options_.cpus;
    hello.inventory.memory = gib(1024);
    for (const auto& [job, attempt, rank] : running_)
      hello.ranks.push_back({job, attempt, rank, {cluster::RankState::started}});
    send(hello);
  }

  void send(const wire::AgentMessage& message) {
    if (socket_) socket_->send(wire::encode(message));
  }

  void receive(const std::string& frame) {
    const auto message = wire::decode_controller_message(frame);
    if (!message) return;
    if (const auto* echo = std::get_if<wire::Echo>(&*message)) note_answer(echo->echo);
    if (const auto* start = std::get_if<wire::StartRanks>(&*message)) on(*start);
    if (const auto* end = std::get_if<wire::EndRanks>(&*message)) on(*end);
    if (std::holds_alternative<wire::Resync>(*message)) say_hello();
  }

  void note_answer(std::uint64_t asked_ns) {
    const auto took = static_cast<std::int64_t>(now_ns() - asked_ns);
    if (took > fleet_.latest_answer_ns_.load()) fleet_.latest_answer_ns_.store(took);
  }

  void on(const wire::StartRanks& start) {
    const std::string& program = start.command.front();
    const bool ends = program == "true" || program == "false";
    fleet_.starts_ += start.ranks.size();
    wire::RankReports started;
    wire::RankReports ended;
    for (const wire::StartRank& rank : start.ranks) {
      started.ranks.push_back({start.job, start.attempt, rank.rank, {cluster::RankState::started}});
      if (!ends) {
        running_.insert({start.job, start.attempt, rank.rank});
        continue;
      }
      ended.ranks.push_back(
          {start.job, start.attempt, rank.rank, {cluster::RankState::exited, program == "true" ? 0 : 1}});
    }
    send(std::move(started));
    if (ends) send(std::move(ended));
  }

  void on(const wire::EndRanks& end) {
    wire::RankReports ended;
    for (const std::int32_t rank : end.ranks) {
      running_.erase({end.job, end.attempt, rank});
      ended.ranks.push_back({end.job, end.attempt, rank, {cluster::RankState::exited, 143}});
    }
    send(std::move(ended));
  }

  Fleet& fleet_;
  std::string name_;
  std::shared_ptr<net::Socket> socket_;
  std::set<Rank> running_;
};

Fleet::Fleet(FleetOptions options) : options_(std::move(options)) {
  allow_many_files();
  for (int number = 0; number < options_.agents; ++number)
    agents_.push_back(std::make_unique<Agent>(*this, number));
  begun_ns_ = now_ns();
  thread_ = std::thread([this] {
    for (std::size_t dial = 0; dial < dials_at_once; ++dial) dial_next();
    beats_ = loop_.every(slice, [this] { beat(); });
    loop_.run();
  });
}

Fleet::~Fleet() {
  loop_.stop();
  thread_.join();
}

void Fleet::dial_next() {
  if (dialed_ == agents_.size()) return;
  Agent& agent = *agents_[dialed_++];
  net::dial(loop_, options_.controller, "/api/v1/agent", options_.token,
            [this, &agent](Result<std::shared_ptr<net::Socket>> socket) {
              if (socket) agent.connect(*socket);
              dial_next();
            });
}

// Each agent once a second, a few at a time: as many as are due, however late this one thread is for all of
// them.
void Fleet::beat() {
  const auto elapsed_s = static_cast<double>(now_ns() - begun_ns_) / 1e9;
  const auto due = static_cast<std::uint64_t>(elapsed_s * static_cast<double>(agents_.size()));
  for (; beats_sent_ < due; ++beats_sent_) agents_[beats_sent_ % agents_.size()]->beat();
}

double Fleet::take_latest_answer_ms() { return static_cast<double>(latest_answer_ns_.exchange(0)) / 1e6; }

}  // namespace tutti::bench
