// `tutti logs` and `tutti wait`: what ranks print, and how jobs end.
#include <algorithm>
#include <chrono>
#include <map>

#include "base/id.hpp"
#include "cli/commands.hpp"
#include "cli/follow.hpp"
#include "cli/job_reading.hpp"
#include "cli/progress_bar.hpp"
#include "cli/terminal.hpp"

namespace tutti::cli {
namespace {

using nlohmann::json;

constexpr auto ends_read_every = std::chrono::seconds(1);

class Logs final : public Command {
 public:
  void declare(config::Flags& flags) override {
    flags.add_word("JOB", options_.job, "the job's id, or the name of a service: of each of its replicas");
    flags.add("follow", follow_, "go on until the job ends");
    flags.add("rank", options_.rank, "only this rank", {.min = 0, .max = 1 << 24});
    flags.add("tail", options_.tail_lines,
              "only the last N lines of each rank; 0 with --follow: only what is new",
              {.min = 0, .max = 1 << 24});
    flags.add("no-prefix", no_prefix_, "do not put [rank] before each line");
    flags.add(
        "raw", options_.raw,
        "send a terminal all that was printed, as when it goes to a file; otherwise only text and colours");
    flags.add("array", array_, "of every element of the job's array, one after the other: [index.rank]");
  }

  Result<int> run() override {
    auto cluster = Cluster::find();
    if (!cluster) return std::move(cluster).error();
    if (!names_job(options_.job)) return of_service(*cluster);
    auto named = job_id(*cluster, options_.job);
    if (!named) return std::move(named).error().within("logs");
    options_.job = *named;
    if (auto id = parse_id_number(options_.job); !id) return std::move(id).error().within("logs");
    options_.prefix = !no_prefix_;
    options_.says_end = false;
    options_.only_logs = true;
    if (options_.rank >= 0) {
      const auto job = cluster->get("jobs/" + options_.job);
      if (job && options_.rank >= job->at("ranks_wanted").get<std::int64_t>())
        return invalid("job " + options_.job + " has " +
                       std::to_string(job->at("ranks_wanted").get<std::int64_t>()) + " ranks, counted from 0")
            .within("logs --rank " + std::to_string(options_.rank));
    }
    if (!array_) return print(*cluster);
    auto elements = read_array(*cluster, options_.job);
    if (!elements) return std::move(elements).error().within("logs " + options_.job);
    int worst = exit_success;
    for (const auto& element : *elements) {
      options_.job = text_of(element, "id");
      options_.label = std::to_string(element.at("array_index").get<int>()) + ".";
      auto done = print(*cluster);
      if (!done) return done;
      worst = std::max(worst, *done);
    }
    return worst;
  }

 private:
  // One after the other: [job.rank].
  Result<int> of_service(Cluster& cluster) {
    const std::string name = options_.job;
    auto service = cluster.get("services/" + url_encode(name));
    if (!service) return std::move(service).error().within("logs " + name);
    const auto& replicas = service->at("replicas");
    if (follow_ && replicas.size() > 1)
      return invalid("it has " + std::to_string(replicas.size()) + " replicas")
          .within("logs --follow " + name)
          .remedy("`tutti show " + name + "` lists them; `tutti logs --follow JOB` follows one");
    options_.prefix = !no_prefix_;
    options_.says_end = false;
    options_.only_logs = true;
    int worst = exit_success;
    for (const auto& replica : replicas) {
      options_.job = text_of(replica, "job");
      options_.label = options_.job + ".";
      auto done = print(cluster);
      if (!done) return done;
      worst = std::max(worst, *done);
    }
    return worst;
  }

  Result<int> print(Cluster& cluster) const {
    return follow_ ? tutti::cli::follow(cluster, options_) : print_logs(cluster, options_);
  }

  FollowOptions options_;
  bool array_ = false;
  bool follow_ = false;
  bool no_prefix_ = false;
};

class Wait final : public Command {
 public:
  void declare(config::Flags& flags) override {
    flags.add_words("JOB", jobs_, "ids of jobs; the exit code is that of the first that failed");
    flags.add("array", array_, "for the whole array of each; the exit code is the worst one of all");
    flags.add("verbose", verbose_,
              "with --array: tell of each element that fails, and not only of all together");
  }

  Result<int> run() override {
    auto cluster = Cluster::find();
    if (!cluster) return std::move(cluster).error();
    int code = exit_success;
    bool was_there = false;
    for (const auto& word : jobs_) {
      auto named = job_id(*cluster, word);
      if (!named) return std::move(named).error().within("wait");
      const std::string& job = *named;
      if (auto id = parse_id_number(job); !id) return std::move(id).error().within("wait");
      auto done = array_ ? wait_for_array(*cluster, job)
                         : tutti::cli::follow(*cluster, {.job = job, .logs = false, .was_there = was_there});
      if (!done) return done;
      was_there = true;
      if (array_) {
        code = std::max(code, *done);
      } else if (code == exit_success) {
        code = *done;
      }
    }
    return code;
  }

 private:
  Result<int> wait_for_array(Cluster& cluster, const std::string& job) const {
    auto elements = read_array(cluster, job);
    if (!elements) return std::move(elements).error().within("wait " + job);
    ProgressBar bar("waiting for array " + job);
    auto read_at = std::chrono::steady_clock::now();
    int worst = exit_success;
    for (std::size_t at = 0; at < elements->size(); ++at) {
      bar.show_count(at, elements->size());
      // A page tells of a thousand at once: where many end, they are not asked for one by one.
      if (std::chrono::steady_clock::now() - read_at > ends_read_every) {
        if (auto again = read_array(cluster, job); again && again->size() == elements->size())
          elements = std::move(again);
        read_at = std::chrono::steady_clock::now();
      }
      const json& element = (*elements)[at];
      const bool tells_nothing = !verbose_ || text_of(element, "state") == "succeeded";
      if (element.contains("exit_code") && tells_nothing) {
        worst = std::max(worst, element.value("exit_code", exit_failed));
        continue;
      }
      auto done = tutti::cli::follow(
          cluster, {.job = text_of(element, "id"), .logs = false, .says_end = verbose_, .was_there = true});
      if (!done) return done;
      worst = std::max(worst, *done);
    }
    if (worst != exit_success && !verbose_) tell_ends(cluster, job);
    return tell_missing(*elements) ? std::max(worst, exit_failed) : worst;
  }

  // The end of an element that the cluster has forgotten is not known, and so the array's is not.
  static bool tell_missing(const nlohmann::json& elements) {
    if (elements.empty()) return false;
    const auto count = elements.front().value("array_count", std::size_t{0});
    if (elements.size() >= count) return false;
    print_note(
        "array " + text_of(elements.front(), "array_id") + " : " + std::to_string(count - elements.size()) +
        " of its " + std::to_string(count) +
        " elements are not kept any more, and how they ended is not known here; an archive, if one was "
        "made, tells it");
    return true;
  }

  // "array 7 : 97 succeeded, 2 failed, 1 cancelled; job 9 failed: …".
  static void tell_ends(Cluster& cluster, const std::string& job) {
    const auto elements = read_array(cluster, job);
    if (!elements || elements->empty()) return;
    std::map<std::string, int> ends;
    std::string first;
    for (const auto& element : *elements) {
      const std::string state = text_of(element, "state");
      ++ends[state];
      const std::string reason = text_of(element, "reason");
      if (first.empty() && state != "succeeded")
        first = "; job " + text_of(element, "id") + " " + state + ": " + reason_in_a_row(reason);
    }
    std::string text;
    for (const char* state : {"succeeded", "failed", "cancelled"}) {
      if (ends[state] > 0)
        text += (text.empty() ? "" : ", ") + std::to_string(ends[state]) + " " + std::string(state);
    }
    print_note("array " + text_of(elements->front(), "array_id") + " : " + text + first);
  }

  std::vector<std::string> jobs_;
  bool array_ = false;
  bool verbose_ = false;
};

}  // namespace

std::unique_ptr<Command> make_logs() { return std::make_unique<Logs>(); }
std::unique_ptr<Command> make_wait() { return std::make_unique<Wait>(); }

}  // namespace tutti::cli
