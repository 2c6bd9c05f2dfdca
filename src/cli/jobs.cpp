// Commands about jobs: jobs, show, logs, wait, cancel, release.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>
#include <set>
#include <thread>

#include <nlohmann/json.hpp>

#include "base/id.hpp"
#include "cli/archive.hpp"
#include "cli/cluster.hpp"
#include "cli/commands.hpp"
#include "cli/explain.hpp"
#include "cli/follow.hpp"
#include "cli/local_time.hpp"
#include "cli/terminal.hpp"
#include "cli/text_table.hpp"
#include "control/cluster/model.hpp"

namespace tutti::cli {
namespace {

using nlohmann::json;

std::string text_of(const json& object, const char* key) {
  return object.contains(key) && object[key].is_string() ? object[key].get<std::string>() : "";
}

// "2026-11-15T09:05:00.250Z" as "11-15 09:05:00".
std::string short_time(const std::string& time) {
  return time.size() < 19 ? "-" : time.substr(5, 5) + " " + time.substr(11, 8);
}

std::string node_summary(const json& job) {
  const auto& nodes = job["nodes"];
  if (nodes.empty()) return "-";
  const std::string first = nodes.front().get<std::string>();
  return nodes.size() == 1 ? first : first + " +" + std::to_string(nodes.size() - 1);
}

// "8", or "4 of 8" where the attempt has fewer than are wanted.
std::string rank_summary(const json& job) {
  const std::string ranks = std::to_string(job["ranks"].get<int>());
  return job["ranks"] == job["ranks_wanted"]
             ? ranks
             : ranks + " of " + std::to_string(job["ranks_wanted"].get<int>());
}

std::string first_line(std::string text, std::size_t width) {
  text = text.substr(0, text.find('\n'));
  if (text.size() > width) text = text.substr(0, width - 3) + "...";
  return text;
}

std::string jobs_table(const json& jobs) {
  TextTable table(
      {"JOB", "NAME", "STATE", "RANKS", "GPUS", "NODES", "ATTEMPT", "USER", "SUBMITTED", "REASON"});
  for (const auto& job : jobs) {
    table.add({text_of(job, "id"), first_line(text_of(job, "name"), 24), text_of(job, "state"),
               rank_summary(job), short_number(job["gpus"].get<double>()), node_summary(job),
               std::to_string(job["attempt"].get<int>()), text_of(job, "user"),
               short_time(text_of(job, "submitted_at")), first_line(text_of(job, "reason"), 60)});
  }
  return table.text();
}

// What is wrong with one is told, and does not spare the others.
template <class Ask>
Result<int> for_each_of(const std::vector<std::string>& jobs, const std::string& what, const Ask& ask) {
  std::optional<Error> last;
  for (const auto& job : jobs) {
    auto done = ask(job);
    if (done) continue;
    if (last) print_note(last->text());
    last = std::move(done).error().within(what + " " + job);
  }
  if (last) return std::move(*last);
  return exit_success;
}

// Page after page, newest first. `more`: there are others beyond the limit.
Result<json> read_jobs(Cluster& cluster, const std::string& query, std::int64_t limit, bool* more = nullptr) {
  auto jobs = json::array();
  std::string before;
  while (static_cast<std::int64_t>(jobs.size()) < limit) {
    const std::int64_t left = std::min<std::int64_t>(limit - static_cast<std::int64_t>(jobs.size()), 1000);
    auto page = cluster.get("jobs?limit=" + std::to_string(left) + query +
                            (before.empty() ? "" : "&before=" + before));
    if (!page) return std::move(page).error();
    for (auto& job : (*page)["jobs"]) jobs.push_back(std::move(job));
    before = text_of(*page, "next");
    if (before.empty()) break;
  }
  if (more != nullptr) *more = !before.empty();
  return jobs;
}

// The elements of the array that the job belongs to, in order.
Result<json> read_array(Cluster& cluster, const std::string& job) {
  auto elements = read_jobs(cluster, "&all=1&array=" + url_encode(job), cluster::array_elements_max);
  if (elements) std::reverse(elements->begin(), elements->end());
  return elements;
}

class Jobs final : public Command {
 public:
  void declare(config::Flags& flags) override {
    flags.add_word("archive", action_, "write finished jobs to a file and remove them from the cluster",
                   false);
    flags.add("all", all_, "finished jobs too");
    flags.add("array", array_, "only the elements of the array that this job belongs to, finished ones too");
    flags.add("limit", limit_, "at most this many, newest first (default: 100)", {.min = 1, .max = 100'000});
    flags.add("watch", watch_, "show them again each second, until Ctrl-C");
    flags.add("json", json_, "a JSON array");
    flags.add("out", archive_.file, "archive: the file, which gets a line of JSON for each job");
    flags.add("older-than", archive_.older_than, "archive: only jobs that ended before that (default: 7d)");
  }

  Result<int> run() override {
    if (!action_.empty() && action_ != "archive")
      return invalid("unknown word '" + action_ + "'")
          .within("jobs")
          .remedy("`tutti show JOB` shows one; `tutti jobs archive` puts finished ones into a file");
    auto cluster = Cluster::find();
    if (!cluster) return std::move(cluster).error();
    if (action_ == "archive") return archive(*cluster);
    std::string query = all_ || !array_.empty() ? "&all=1" : "";
    if (!array_.empty()) {
      if (auto id = parse_id_number(array_); !id) return std::move(id).error().within("jobs --array");
      query += "&array=" + array_;
    }
    for (;;) {
      bool more = false;
      auto jobs = read_jobs(*cluster, query, limit_, &more);
      if (!jobs) return std::move(jobs).error().within("jobs");
      if (watch_ && isatty(STDOUT_FILENO) == 1) std::fputs("\033[H\033[2J", stdout);
      if (json_) {
        std::printf("%s\n", jobs->dump().c_str());
      } else {
        print_text(jobs_table(*jobs));
      }
      if (!json_ && jobs->empty()) std::fputs("(none; --all shows finished ones)\n", stdout);
      std::fflush(stdout);
      if (more && !watch_)
        print_note("there are more than these " + std::to_string(limit_) + "; --limit N shows N");
      if (!watch_) return exit_success;
      std::this_thread::sleep_for(std::chrono::seconds(1));
    }
  }

 private:
  Result<int> archive(Cluster& cluster) const {
    if (archive_.file.empty())
      return invalid("--out is missing").within("jobs archive").remedy("name the file that gets the jobs");
    const auto archived = archive_jobs(cluster, archive_);
    if (!archived) return Error(archived.error()).within("jobs archive");
    print_text(std::to_string(*archived) + (*archived == 1 ? " job is in " : " jobs are in ") +
               archive_.file + "\n");
    return exit_success;
  }

  std::string action_;
  ArchiveOptions archive_{.file = "", .older_than = 7 * 24h};
  std::string array_;
  bool all_ = false;
  bool watch_ = false;
  bool json_ = false;
  std::int64_t limit_ = 100;
};

class Show final : public Command {
 public:
  void declare(config::Flags& flags) override {
    flags.add_word("JOB", job_, "the job's id");
    flags.add("json", json_, "a JSON object");
  }

  Result<int> run() override {
    auto cluster = Cluster::find();
    if (!cluster) return std::move(cluster).error();
    auto job = cluster->get("jobs/" + url_encode(job_));
    if (!job) return std::move(job).error().within("show " + job_);
    if (json_) {
      std::printf("%s\n", job->dump().c_str());
    } else {
      print_text(text(*cluster, *job));
    }
    return exit_success;
  }

 private:
  static std::string text(Cluster& cluster, const json& job) {
    const std::string state = text_of(job, "state");
    std::string text = "job " + text_of(job, "id") + "  " + text_of(job, "name") + "  " + state + "\n";
    std::string command;
    for (const auto& word : job["command"])
      command += (command.empty() ? "" : " ") + first_line(word.get<std::string>(), 100);
    text += "  command    " + command + "\n";
    text += "  gang       ranks " + rank_summary(job) + ", " + short_number(job["gpus"].get<double>()) +
            " GPUs, queue " + text_of(job, "queue") + "\n";
    if (job.contains("array_id"))
      text += "  array      index " + std::to_string(job["array_index"].get<int>()) + " of the " +
              std::to_string(job["array_count"].get<int>()) + " of array " + text_of(job, "array_id") +
              ", which `tutti jobs --array " + text_of(job, "array_id") + "` lists\n";
    text += "  submitted  " + text_of(job, "submitted_at") + " by " + text_of(job, "user") + "\n";
    if (job.contains("started_at"))
      text += "  started    " + text_of(job, "started_at") + ", attempt " +
              std::to_string(job["attempt"].get<int>()) + "\n";
    if (job.contains("finished_at"))
      text += "  finished   " + text_of(job, "finished_at") + ", exit code " +
              std::to_string(job.value("exit_code", 0)) + "\n";
    const std::string reason = with_local_times(text_of(job, "reason"));
    const bool waits = state == "queued" || state == "restarting" || state == "held";
    if (!reason.empty()) text += std::string(waits ? "  waits      " : "  because    ") + reason + "\n";
    if (waits && state != "held") text += expected(cluster, text_of(job, "id"));
    return text + ranks(job);
  }

  static std::string ranks(const json& job) {
    if (job["rank_states"].empty()) return "";
    TextTable table({"  RANK", "NODE", "STATE", "EXIT", "DEVICES"});
    for (const auto& rank : job["rank_states"]) {
      std::string devices;
      for (const auto& device : rank["devices"])
        devices += (devices.empty() ? "" : ",") + std::to_string(device.get<int>());
      const bool ended = text_of(rank, "state") == "ended";  // and not lost
      table.add({"  " + std::to_string(rank["rank"].get<int>()), text_of(rank, "node"),
                 text_of(rank, "state"), ended ? std::to_string(rank["exit_code"].get<int>()) : "-",
                 devices.empty() ? "-" : devices});
    }
    return table.text() + details(job);
  }

  // When it will start; nothing if the answer does not come, for the rest is true without it.
  static std::string expected(Cluster& cluster, const std::string& job) {
    const auto view = cluster.get("jobs/" + url_encode(job) + "/explain");
    if (!view || text_of(*view, "queue").empty()) return "";
    return "  expected   " + expected_text(*view) + "; `tutti explain " + job + "` tells more\n";
  }

  // How far running ranks are, or whom they wait for, each sentence once.
  static std::string details(const json& job) {
    std::string text;
    std::set<std::string> told;
    for (const auto& rank : job["rank_states"]) {
      const std::string detail = text_of(rank, "detail");
      if (text_of(rank, "state") != "running" || detail.empty() || !told.insert(detail).second) continue;
      text += "  rank " + std::to_string(rank["rank"].get<int>()) + ": " + detail + "\n";
    }
    return text;
  }

  std::string job_;
  bool json_ = false;
};

class Logs final : public Command {
 public:
  void declare(config::Flags& flags) override {
    flags.add_word("JOB", options_.job, "the job's id");
    flags.add("follow", follow_, "go on until the job ends");
    flags.add("rank", options_.rank, "only this rank", {.min = 0, .max = 1 << 24});
    flags.add("tail", options_.tail_lines, "only the last N lines of each rank", {.min = 0, .max = 1 << 24});
    flags.add("no-prefix", no_prefix_, "do not put [rank] before each line");
    flags.add(
        "raw", options_.raw,
        "send a terminal all that was printed, as when it goes to a file; otherwise only text and colours");
    flags.add("array", array_, "of every element of the job's array, one after the other: [index.rank]");
  }

  Result<int> run() override {
    auto cluster = Cluster::find();
    if (!cluster) return std::move(cluster).error();
    if (auto id = parse_id_number(options_.job); !id) return std::move(id).error().within("logs");
    options_.prefix = !no_prefix_;
    options_.says_end = false;
    options_.only_logs = true;
    if (options_.rank >= 0) {
      const auto job = cluster->get("jobs/" + options_.job);
      if (job && options_.rank >= (*job)["ranks_wanted"].get<std::int64_t>())
        return invalid("job " + options_.job + " has " +
                       std::to_string((*job)["ranks_wanted"].get<std::int64_t>()) + " ranks, counted from 0")
            .within("logs --rank " + std::to_string(options_.rank));
    }
    if (!array_) return print(*cluster);
    auto elements = read_array(*cluster, options_.job);
    if (!elements) return std::move(elements).error().within("logs " + options_.job);
    int worst = exit_success;
    for (const auto& element : *elements) {
      options_.job = text_of(element, "id");
      options_.label = std::to_string(element["array_index"].get<int>()) + ".";
      auto done = print(*cluster);
      if (!done) return done;
      worst = std::max(worst, *done);
    }
    return worst;
  }

 private:
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
  }

  Result<int> run() override {
    auto cluster = Cluster::find();
    if (!cluster) return std::move(cluster).error();
    int code = exit_success;
    bool was_there = false;
    for (const auto& job : jobs_) {
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
  static Result<int> wait_for_array(Cluster& cluster, const std::string& job) {
    auto elements = read_array(cluster, job);
    if (!elements) return std::move(elements).error().within("wait " + job);
    int worst = exit_success;
    for (const auto& element : *elements) {
      // What has succeeded already has nothing to tell.
      if (text_of(element, "state") == "succeeded") continue;
      auto done =
          tutti::cli::follow(cluster, {.job = text_of(element, "id"), .logs = false, .was_there = true});
      if (!done) return done;
      worst = std::max(worst, *done);
    }
    return worst;
  }

  std::vector<std::string> jobs_;
  bool array_ = false;
};

class Cancel final : public Command {
 public:
  void declare(config::Flags& flags) override {
    flags.add_words("JOB", jobs_, "ids of jobs");
    flags.add("array", array_, "every element of the array that each belongs to");
  }

  Result<int> run() override {
    auto cluster = Cluster::find();
    if (!cluster) return std::move(cluster).error();
    return for_each_of(jobs_, "cancel", [&](const std::string& job) {
      return cluster->post("jobs/" + url_encode(job) + "/cancel?by=" + url_encode(user_name()) +
                           (array_ ? "&array=1" : ""));
    });
  }

 private:
  std::vector<std::string> jobs_;
  bool array_ = false;
};

class Release final : public Command {
 public:
  void declare(config::Flags& flags) override { flags.add_words("JOB", jobs_, "ids of jobs"); }

  Result<int> run() override {
    auto cluster = Cluster::find();
    if (!cluster) return std::move(cluster).error();
    return for_each_of(jobs_, "release", [&](const std::string& job) {
      return cluster->post("jobs/" + url_encode(job) + "/release");
    });
  }

 private:
  std::vector<std::string> jobs_;
};

}  // namespace

std::unique_ptr<Command> make_jobs() { return std::make_unique<Jobs>(); }
std::unique_ptr<Command> make_show() { return std::make_unique<Show>(); }
std::unique_ptr<Command> make_logs() { return std::make_unique<Logs>(); }
std::unique_ptr<Command> make_wait() { return std::make_unique<Wait>(); }
std::unique_ptr<Command> make_cancel() { return std::make_unique<Cancel>(); }
std::unique_ptr<Command> make_release() { return std::make_unique<Release>(); }

}  // namespace tutti::cli
