// `tutti show`: one job, why it waits, where it runs, why it failed.
#include <cstdio>
#include <set>

#include "base/text.hpp"
#include "cli/commands.hpp"
#include "cli/explain.hpp"
#include "cli/job_reading.hpp"
#include "cli/local_time.hpp"
#include "cli/terminal.hpp"
#include "cli/text_table.hpp"

namespace tutti::cli {
namespace {

using nlohmann::json;

constexpr std::size_t word_bytes_max = 100;
constexpr Duration expected_time_max =
    2500ms;  // what is known of the job does not wait longer for a forecast

std::string shown_word(const std::string& word) {
  const std::string line = word.substr(0, word.find('\n'));
  return line.size() <= word_bytes_max ? line : std::string(cut_utf8(line, word_bytes_max - 3)) + "...";
}

class Show final : public Command {
 public:
  void declare(config::Flags& flags) override {
    flags.add_word("JOB", job_, "the job's id");
    flags.add("json", json_, "a JSON object");
  }

  Result<int> run() override {
    auto cluster = Cluster::find();
    if (!cluster) return std::move(cluster).error();
    auto id = job_id(*cluster, job_);
    if (!id) return std::move(id).error().within("show");
    auto job = cluster->get("jobs/" + url_encode(*id));
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
    std::string text =
        "job " + text_of(job, "id") + "  " + text_of(job, "name") + "  " + shown_state(job) + "\n";
    std::string command;
    for (const auto& word : job.at("command"))
      command += (command.empty() ? "" : " ") + shown_word(word.get<std::string>());
    text += "  command    " + command + "\n";
    std::string secrets;
    for (const auto& name : job.value("secrets", json::array()))
      secrets += (secrets.empty() ? "" : ", ") + name.get<std::string>();
    if (!secrets.empty()) text += "  secrets    " + secrets + "\n";
    text += "  gang       ranks " + rank_summary(job) + ", " + short_number(job.at("gpus").get<double>()) +
            " GPUs, queue " + text_of(job, "queue") + "\n";
    if (job.contains("array_id"))
      text += "  array      index " + std::to_string(job.at("array_index").get<int>()) + " of the " +
              std::to_string(job.at("array_count").get<int>()) + " of array " + text_of(job, "array_id") +
              ", which `tutti jobs --array " + text_of(job, "array_id") + "` lists\n";
    text += "  submitted  " + local_date_time(text_of(job, "submitted_at")) + " by " + text_of(job, "user") +
            "\n";
    if (job.contains("started_at"))
      text += "  started    " + local_date_time(text_of(job, "started_at")) + ", attempt " +
              std::to_string(job.at("attempt").get<int>()) + "\n";
    if (job.contains("finished_at"))
      text += "  finished   " + local_date_time(text_of(job, "finished_at")) + ", exit code " +
              std::to_string(job.value("exit_code", 0)) + "\n";
    const std::string reason = with_local_times(text_of(job, "reason"));
    const bool waits = state == "queued" || state == "restarting" || state == "held";
    if (!reason.empty()) text += std::string(waits ? "  waits      " : "  because    ") + reason + "\n";
    if (waits && state != "held") text += expected(cluster, text_of(job, "id"));
    return text + ranks(job) + strays(job);
  }

  // It may have ended for the cluster, and not for a node that nobody hears.
  static std::string strays(const json& job) {
    std::string nodes;
    for (const auto& node : job.value("may_run_on", json::array()))
      nodes += (nodes.empty() ? "" : ", ") + node.get<std::string>();
    if (nodes.empty()) return "";
    return "  beware     ranks of it may still run on " + nodes +
           ", which is lost: they are ended when its agent is back, or end them there yourself\n";
  }

  static std::string ranks(const json& job) {
    if (job.at("rank_states").empty()) return "";
    TextTable table({"  RANK", "NODE", "STATE", "EXIT", "DEVICES"});
    for (const auto& rank : job.at("rank_states")) {
      std::string devices;
      for (const auto& device : rank.at("devices"))
        devices += (devices.empty() ? "" : ",") + std::to_string(device.get<int>());
      const bool ended = text_of(rank, "state") == "ended";  // and not lost
      table.add({"  " + std::to_string(rank.at("rank").get<int>()), text_of(rank, "node"),
                 text_of(rank, "state"), ended ? std::to_string(rank.at("exit_code").get<int>()) : "-",
                 devices.empty() ? "-" : devices});
    }
    return table.text() + details(job);
  }

  // When it will start; nothing if the answer does not come, for the rest is true without it.
  static std::string expected(Cluster& cluster, const std::string& job) {
    const auto view = cluster.get("jobs/" + url_encode(job) + "/explain", expected_time_max);
    if (!view || text_of(*view, "queue").empty()) return "";
    return "  expected   " + expected_text(*view) + "; `tutti explain " + job + "` tells more\n";
  }

  // How far running ranks are, or whom they wait for, and what those that ended well have to say; each
  // sentence once.
  static std::string details(const json& job) {
    std::string text;
    std::set<std::string> told;
    for (const auto& rank : job.at("rank_states")) {
      const std::string detail = text_of(rank, "detail");
      const bool tells = text_of(rank, "state") == "running" ||
                         (text_of(rank, "state") == "ended" && rank.value("exit_code", 0) == 0);
      if (!tells || detail.empty() || !told.insert(detail).second) continue;
      text += "  rank " + std::to_string(rank.at("rank").get<int>()) + ": " + detail + "\n";
    }
    return text;
  }

  std::string job_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_show() { return std::make_unique<Show>(); }

}  // namespace tutti::cli
