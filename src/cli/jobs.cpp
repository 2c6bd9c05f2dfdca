// `tutti jobs`: lists jobs, or puts finished ones away into a file.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>
#include <utility>

#include "base/clock/clock.hpp"
#include "base/id.hpp"
#include "base/text.hpp"
#include "cli/archive.hpp"
#include "cli/commands.hpp"
#include "cli/job_reading.hpp"
#include "cli/local_time.hpp"
#include "cli/terminal.hpp"
#include "cli/text_table.hpp"

namespace tutti::cli {
namespace {

using nlohmann::json;

constexpr std::size_t name_letters_max = 24;

const std::vector<std::string>& state_words() {
  static const std::vector<std::string> words{"queued", "starting",  "running", "restarting", "ending",
                                              "held",   "succeeded", "failed",  "cancelled"};
  return words;
}

bool has_ended(const std::string& state) {
  return state == "succeeded" || state == "failed" || state == "cancelled";
}

std::string node_summary(const json& job) {
  const auto& nodes = job.at("nodes");
  if (nodes.empty()) return "-";
  const std::string first = nodes.front().get<std::string>();
  return nodes.size() == 1 ? first : first + " +" + std::to_string(nodes.size() - 1);
}

// How long its attempt has run, or ran.
std::string time_summary(const json& job, Instant now) {
  const std::string state = text_of(job, "state");
  const auto begun = parse_instant(text_of(job, "started_at"));
  if (!begun || (!has_ended(state) && state != "starting" && state != "running")) return "-";
  const Instant end = parse_instant(text_of(job, "finished_at")).value_or(now);
  return format_duration(std::chrono::floor<std::chrono::seconds>(std::max(end - *begun, Duration::zero())));
}

// "7[3]": element 3 of the array whose first job is 7.
std::string array_summary(const json& job) {
  if (!job.contains("array_index")) return "-";
  return text_of(job, "array_id") + "[" + std::to_string(job.at("array_index").get<int>()) + "]";
}

std::string name_summary(const json& job) {
  const std::string name = text_of(job, "name");
  return name.size() <= name_letters_max ? name : std::string(cut_utf8(name, name_letters_max - 3)) + "...";
}

std::string jobs_table(const json& jobs, Instant now) {
  const bool arrays =
      std::any_of(jobs.begin(), jobs.end(), [](const json& job) { return job.contains("array_index"); });
  std::vector<std::string> titles{"JOB",   "NAME",    "STATE", "RANKS",     "GPUS",
                                  "NODES", "ATTEMPT", "USER",  "SUBMITTED", "TIME"};
  if (arrays) titles.insert(titles.begin() + 1, "ARRAY");
  titles.emplace_back("REASON");
  TextTable table(std::move(titles));
  for (const auto& job : jobs) {
    std::vector<std::string> cells{text_of(job, "id"),
                                   name_summary(job),
                                   shown_state(job),
                                   rank_summary(job),
                                   short_number(job.at("gpus").get<double>()),
                                   node_summary(job),
                                   std::to_string(job.at("attempt").get<int>()),
                                   text_of(job, "user"),
                                   local_time(text_of(job, "submitted_at")),
                                   time_summary(job, now),
                                   reason_in_a_row(with_local_times(text_of(job, "reason")))};
    if (arrays) cells.insert(cells.begin() + 1, array_summary(job));
    table.add(std::move(cells));
  }
  return table.text(terminal_columns());
}

class Jobs final : public Command {
 public:
  void declare(config::Flags& flags) override {
    flags.add_word("archive", action_, "write finished jobs to a file and remove them from the cluster",
                   false);
    flags.add("all", all_, "finished jobs too");
    flags.add("state", given_states_,
              "only jobs in this state, such as running, queued, held or failed; several with commas");
    flags.add("user", user_, "only those of this user");
    flags.add("queue", queue_, "only those of this queue and its parts");
    flags.add("name", name_, "only those with this in their name");
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
    for (const std::string& given : given_states_) {
      for (const std::string_view state : split(given, ',')) asked_states_.emplace_back(trim(state));
    }
    const auto query = make_query();
    if (!query) return Error(query.error()).within("jobs");
    auto cluster = Cluster::find();
    if (!cluster) return std::move(cluster).error();
    if (action_ == "archive") return archive(*cluster);
    for (;;) {
      bool more = false;
      auto jobs = read_jobs(*cluster, *query, limit_, &more);
      if (!jobs) return std::move(jobs).error().within("jobs");
      if (watch_ && isatty(STDOUT_FILENO) == 1) std::fputs("\033[H\033[2J", stdout);
      show(*jobs);
      if (more && !watch_)
        print_note("there are more than these " + std::to_string(limit_) + "; --limit N shows N");
      if (!watch_) return exit_success;
      if (auto written = flush_text(); !written) return std::move(written).error();
      std::this_thread::sleep_for(std::chrono::seconds(1));
    }
  }

 private:
  Result<std::string> make_query() const {
    const auto& states = state_words();
    std::string wanted;
    bool ended = false;
    for (const std::string& asked : asked_states_) {
      wanted += (wanted.empty() ? "" : ",") + asked;
      ended = ended || has_ended(asked);
      if (std::find(states.begin(), states.end(), asked) != states.end()) continue;
      std::string all;
      for (const std::string& state : states) all += (all.empty() ? "" : ", ") + state;
      return invalid("there is no state '" + asked.substr(0, 64) + "'")
          .within("--state")
          .remedy(did_you_mean(asked, states))
          .remedy("one of: " + all);
    }
    std::string query = all_ || !array_.empty() || ended ? "&all=1" : "";
    if (!array_.empty()) {
      if (auto id = parse_id_number(array_); !id) return std::move(id).error().within("--array");
      query += "&array=" + array_;
    }
    for (const auto& [key, value] : {std::pair{"state", &std::as_const(wanted)},
                                     {"user", &user_},
                                     {"queue", &queue_},
                                     {"name", &name_}}) {
      if (!value->empty()) query += "&" + std::string(key) + "=" + url_encode(*value);
    }
    return query;
  }

  void show(const json& jobs) const {
    if (json_) {
      std::printf("%s\n", jobs.dump().c_str());
    } else {
      print_text(jobs_table(jobs, now_on_the_wall()));
      if (jobs.empty()) std::fputs(all_ ? "(none)\n" : "(none; --all shows finished ones)\n", stdout);
    }
  }

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
  std::vector<std::string> given_states_;
  std::vector<std::string> asked_states_;
  std::string user_;
  std::string queue_;
  std::string name_;
  bool all_ = false;
  bool watch_ = false;
  bool json_ = false;
  std::int64_t limit_ = 100;
};

}  // namespace

std::unique_ptr<Command> make_jobs() { return std::make_unique<Jobs>(); }

}  // namespace tutti::cli
