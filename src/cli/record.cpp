// `tutti record`: what a cluster was asked to do and how long it took, as a trace that `tutti sim run`
// replays.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include <nlohmann/json.hpp>

#include "cli/cluster.hpp"
#include "cli/commands.hpp"
#include "cli/sim_replay.hpp"
#include "control/trace/row.hpp"

namespace tutti::cli {
namespace {

using nlohmann::json;

constexpr int page_jobs = 1000;

// "2026-11-15T09:05:00.250Z" in seconds; 0 if it is none.
double seconds_of(const json& job, const char* key) {
  if (!job.contains(key) || !job[key].is_string()) return 0;
  const std::string text = job[key].get<std::string>();
  struct tm parts {};
  const char* rest = ::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &parts);
  if (rest == nullptr) return 0;
  return static_cast<double>(::timegm(&parts)) + (*rest == '.' ? std::strtod(rest, nullptr) : 0);
}

class Record final : public Command {
 public:
  void declare(config::Flags& flags) override {
    flags.add("out", out_, "the file to write (default: stdout)");
  }

  Result<int> run() override {
    auto cluster = Cluster::find();
    if (!cluster) return std::move(cluster).error().within("record");
    std::vector<json> jobs;
    for (std::string before;;) {
      auto page = cluster->get("jobs?all=true&limit=" + std::to_string(page_jobs) +
                               (before.empty() ? "" : "&before=" + before));
      if (!page) return std::move(page).error().within("record");
      for (auto& job : page->at("jobs")) {
        if (job.contains("finished_at") && job.contains("started_at")) jobs.push_back(std::move(job));
      }
      before = page->value("next", "");
      if (before.empty()) break;
    }
    std::reverse(jobs.begin(), jobs.end());  // pages come newest first
    if (auto written = write_report(out_, table(jobs)); !written)
      return std::move(written).error().within("record");
    if (out_ != "-") std::printf("%zu jobs are in %s\n", jobs.size(), out_.c_str());
    return exit_success;
  }

 private:
  static std::string table(const std::vector<json>& jobs) {
    std::string text = trace::header_line();
    for (const json& job : jobs) {
      text += trace::line_of({.id = job.value("id", ""),
                              .submit_s = seconds_of(job, "submitted_at"),
                              .gpus = job.value("gpus", 0.0),
                              .duration_s = seconds_of(job, "finished_at") - seconds_of(job, "started_at"),
                              .gpu_type = "",
                              .user = job.value("user", ""),
                              .status = job.value("state", ""),
                              .partition = job.value("queue", "")});
    }
    return text;
  }

  std::string out_ = "-";
};

}  // namespace

std::unique_ptr<Command> make_record() { return std::make_unique<Record>(); }

}  // namespace tutti::cli
