// `tutti fabric`: measures the network between all nodes with a gang of its own, and shows what is known of
// it.
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>

#include <nlohmann/json.hpp>

#include "base/visible.hpp"
#include "cli/cluster.hpp"
#include "cli/commands.hpp"
#include "cli/local_time.hpp"
#include "cli/submit.hpp"
#include "cli/terminal.hpp"
#include "cli/text_table.hpp"
#include "control/cluster/fabric.hpp"

namespace tutti::cli {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr Duration timeout_default = 5min;
constexpr Duration timeout_min = 1s;

// In a rank this is the program of its agent: ranks are children of `tutti shim`.
constexpr const char* tutti_of_the_node = "/proc/self/exe";
constexpr const char* progress_mark = "round ";

std::atomic<bool> ctrl_c{false};
void note_stop(int) { ctrl_c = true; }

// A line on a terminal that is written over and over; nothing elsewhere.
class Progress {
 public:
  Progress() = default;
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() { show(""); }

  void show(const std::string& text) {
    if (!terminal_ || text == shown_) return;
    std::fprintf(stderr, "\r\033[K%s", visible_line(text).c_str());
    std::fflush(stderr);
    shown_ = text;
  }

 private:
  bool terminal_ = ::isatty(STDERR_FILENO) == 1;
  std::string shown_;
};

// One measurement under way: the job, and what its rank 0 has printed.
class Measurement {
 public:
  enum class End { done, interrupted, late };

  Measurement(Cluster& cluster, std::string job, std::size_t nodes, Clock::time_point give_up_at)
      : cluster_(cluster), job_(std::move(job)), nodes_(nodes), give_up_at_(give_up_at) {}

  // Until the job ends, somebody presses Ctrl-C or the time is over. A controller that goes away is waited
  // for.
  Result<End> follow() {
    const std::string path = "/api/v1/jobs/" + job_ + "/logs?rank=0&follow=1";
    while (goes_on()) {
      output_.clear();
      auto done = cluster_.client().events(
          path, [this](auto event, auto data) { return on(event, data); }, [this] { return goes_on(); });
      progress_.show("");
      if (view_.contains("exit_code") && done) return End::done;
      if (!done && view_.empty()) return std::move(done).error();
      if (goes_on()) std::this_thread::sleep_for(reconnect_every);
    }
    return ctrl_c ? End::interrupted : End::late;
  }

  const json& view() const { return view_; }

  // The links that rank 0 printed.
  Result<json> links() const {
    const auto begin = output_.rfind("[\n");
    const auto end = output_.rfind(']');
    const bool whole = begin != std::string::npos && end != std::string::npos && begin < end;
    auto links = json::parse(whole ? output_.substr(begin, end + 1 - begin) : "", nullptr, false);
    if (!links.is_array() || links.size() != nodes_ * (nodes_ - 1))
      return failed("its rank 0 printed no measurement")
          .remedy("`tutti logs " + job_ + "` shows what it printed");
    return links;
  }

  void cancel() const {
    auto client = cluster_.another();
    const auto answer = client.request(
        "POST", "/api/v1/jobs/" + job_ + "/cancel?by=" + url_encode(user_name()), "", cancel_time_max);
    if (!answer) print_note("job " + job_ + " : cannot be cancelled now: " + answer.error().text());
  }

 private:
  bool goes_on() const { return !ctrl_c && Clock::now() < give_up_at_; }

  bool on(std::string_view event, std::string_view data) {
    const auto body = json::parse(data, nullptr, false);
    if (body.is_discarded()) return true;
    if (event == "log") output_ += body.value("text", "");
    if (event == "job") view_ = body;
    progress_.show(doing());
    return goes_on();
  }

  std::string doing() const {
    const std::string state = view_.value("state", "");
    if (state == "queued") return "waiting: " + view_.value("reason", "");
    std::string text = "measuring " + std::to_string(nodes_) + " nodes";
    const auto round = output_.rfind(progress_mark);
    if (round == std::string::npos) return text;
    return text + ", " + output_.substr(round, output_.find('\n', round) - round);
  }

  Cluster& cluster_;
  std::string job_;
  std::size_t nodes_;
  Clock::time_point give_up_at_;
  Progress progress_;
  json view_ = json::object();
  std::string output_;
};

class Fabric final : public Command {
 public:
  void declare(config::Flags& flags) override {
    flags.add("last", last_, "show the last measurement instead of making one");
    flags.add("json", json_,
              "JSON for scripts: {links: [from, to, latency_us, bandwidth_gb_s, slow, measured_at]}");
    flags.add("timeout", timeout_, "give up when it takes longer (default: 5m)");
  }

  Result<int> run() override {
    if (timeout_ < timeout_min) return invalid("--timeout is too short").remedy("at least 1s");
    auto cluster = Cluster::find();
    if (!cluster) return std::move(cluster).error();
    if (!last_) {
      auto measured = measure(*cluster);
      if (!measured || *measured != exit_success) return measured;
    }
    auto document = cluster->get("fabric");
    if (!document) return std::move(document).error().within("fabric");
    if (json_) {
      std::printf("%s\n", document->dump().c_str());
      return exit_success;
    }
    if (document->at("links").empty())
      return failed("nothing has been measured yet").within("fabric").remedy("`tutti fabric` does it");
    print_text(table(document->at("links")));
    return exit_success;
  }

 private:
  // Makes a measurement and stores it.
  Result<int> measure(Cluster& cluster) const {
    const auto give_up_at = Clock::now() + timeout_;
    auto nodes = ready_nodes(cluster);
    if (!nodes) return std::move(nodes).error().within("fabric");
    ::signal(SIGINT, note_stop);
    auto job = submit(cluster, *nodes);
    if (!job) return std::move(job).error().within("fabric");
    Measurement measurement(cluster, *job, *nodes, give_up_at);
    auto end = measurement.follow();
    ::signal(SIGINT, SIG_DFL);
    if (!end || *end != Measurement::End::done) measurement.cancel();
    const std::string which = "fabric, job " + *job;
    if (!end) return std::move(end).error().within(which);
    if (*end == Measurement::End::interrupted) {
      std::fprintf(stderr, "tutti: %s : cancelled\n", which.c_str());
      return exit_interrupted;
    }
    if (*end == Measurement::End::late) return too_late(measurement.view()).within(which);
    if (measurement.view().value("state", "") != "succeeded") {
      return failed(measurement.view().value("state", "") + ": " + measurement.view().value("reason", ""))
          .within(which)
          .remedy("nothing was stored; `tutti show " + *job + "` tells more");
    }
    auto links = measurement.links();
    if (!links) return std::move(links).error().within(which);
    if (auto put = cluster.put("fabric", json{{"links", *links}}.dump()); !put)
      return std::move(put).error().within(which);
    return exit_success;
  }

  // How many there are; who is left out is told.
  static Result<std::size_t> ready_nodes(Cluster& cluster) {
    auto list = cluster.nodes();
    if (!list) return std::move(list).error();
    std::size_t ready = 0;
    for (const auto& node : list->at("nodes")) {
      const auto state = node.at("state").get<std::string>();
      if (state == "ready") {
        ++ready;
      } else {
        print_note("node " + node.at("name").get<std::string>() + " is left out: it is " + state);
      }
    }
    if (ready < 2) {
      return failed(ready == 0 ? "no node is ready" : "only one node is ready, and a link needs two")
          .remedy("`tutti nodes` lists them");
    }
    if (ready > cluster::fabric_nodes_max) {
      return failed(std::to_string(ready) + " nodes are ready, and at most " +
                    std::to_string(cluster::fabric_nodes_max) + " can be measured at once")
          .remedy("`tutti drain NODE` leaves one out");
    }
    return ready;
  }

  Result<std::string> submit(Cluster& cluster, std::size_t nodes) const {
    cluster::JobSpec spec;
    spec.name = "fabric";
    spec.command = {tutti_of_the_node, "bench", "fabric"};
    spec.workdir = "/";
    spec.user = user_name();
    spec.shape.ranks = spec.shape.nodes = static_cast<std::int32_t>(nodes);
    spec.shape.ranks_per_node = 1;
    spec.time_limit = timeout_ + cancel_time_max;  // for when this program is gone by then
    spec.restarts = 0;
    return tutti::cli::submit(cluster, std::vector{spec});
  }

  Error too_late(const json& job) const {
    const bool waits = job.value("state", "") == "queued";
    return failed(waits ? "the nodes were not free within " + format_duration(timeout_) + ": " +
                              job.value("reason", "")
                        : "it was not done within " + format_duration(timeout_))
        .remedy("it is cancelled; --timeout gives it more time");
  }

  static std::string table(const json& links) {
    TextTable table({"FROM", "TO", "LATENCY", "GB/S", ""});
    std::size_t slow = 0;
    for (const auto& link : links) {
      if (link.at("slow").get<bool>()) ++slow;
      table.add({link.at("from").get<std::string>(), link.at("to").get<std::string>(),
                 short_number(link.at("latency_us").get<double>()) + " us",
                 short_number(link.at("bandwidth_gb_s").get<double>()),
                 link.at("slow").get<bool>() ? "slow: " + link.value("reason", "") : ""});
    }
    return table.text() + std::to_string(slow) + " of " + std::to_string(links.size()) +
           " links are slow; measured " +
           local_date_time(links.front().at("measured_at").get<std::string>()) + "\n";
  }

  bool last_ = false;
  bool json_ = false;
  Duration timeout_ = timeout_default;
};

}  // namespace

std::unique_ptr<Command> make_fabric() { return std::make_unique<Fabric>(); }

}  // namespace tutti::cli
