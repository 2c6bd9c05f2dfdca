// `tutti show`: one job, why it waits, where it runs, why it failed; or one service with its replicas.
#include <cmath>
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
    flags.add_word("JOB", job_, "the job's id, or the name of a service");
    flags.add("json", json_, "a JSON object");
  }

  Result<int> run() override {
    auto cluster = Cluster::find();
    if (!cluster) return std::move(cluster).error();
    if (!names_job(job_)) return show_service(*cluster);
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
  Result<int> show_service(Cluster& cluster) const {
    auto service = cluster.get("services/" + url_encode(job_));
    if (!service) return std::move(service).error().within("show " + job_);
    if (json_)
      std::printf("%s\n", service->dump().c_str());
    else
      print_text(service_text(*service));
    return exit_success;
  }

  static std::string service_text(const json& service) {
    std::string text = "service " + text_of(service, "name") + "  " + text_of(service, "state") + "\n";
    std::string command;
    for (const auto& word : service.at("command"))
      command += (command.empty() ? "" : " ") + shown_word(word.get<std::string>());
    text += "  command    " + command + "\n";
    text += "  version    " + std::to_string(service.value("version", 0));
    if (service.contains("next_version"))
      text += ", and " + std::to_string(service.value("next_version", 0)) +
              (service.contains("canary_share")
                   ? " as a canary for " + short_number(service.value("canary_share", 0.0) * 100) + "%"
                   : " takes its place");
    text += "\n  replicas   " + std::to_string(service.value("replicas_ready", 0)) + " ready of " +
            std::to_string(service.value("replicas_wanted", 0)) + " wanted, " +
            std::to_string(service.value("replicas_min", 0)) + " at least, " +
            std::to_string(service.value("replicas_max", 0)) + " at most, queue " +
            text_of(service, "queue") + ", user " + text_of(service, "user") + "\n";
    text += "  changed    " + local_date_time(text_of(service, "changed_at")) + ": " +
            text_of(service, "last_change") + "\n";
    if (service.contains("demand")) {
      const json& demand = service.at("demand");
      text += "  asked      " + text_of(demand, "waiting") + " wait, " + text_of(demand, "running") +
              " run, caches used to " + short_number(std::round(demand.value("cache_used", 0.0) * 100)) + "%";
      if (const double ttft = demand.value("ttft_p90_ms", 0.0); ttft > 0)
        text += ", first tokens within " + short_number(std::round(ttft)) + " ms (p90)";
      text += "\n";
    }
    const std::string reason = with_local_times(text_of(service, "reason"));
    if (!reason.empty()) text += "  because    " + reason + "\n";
    return text + replicas(service);
  }

  static std::string replicas(const json& service) {
    if (service.at("replicas").empty()) return "";
    TextTable table({"  JOB", "VERSION", "STATE", "NODE", "URL"});
    for (const auto& replica : service.at("replicas")) {
      const std::string node = text_of(replica, "node");
      const std::string url = text_of(replica, "url");
      table.add({"  " + text_of(replica, "job"), std::to_string(replica.value("version", 0)),
                 text_of(replica, "state"), node.empty() ? "-" : node, url.empty() ? "-" : url});
    }
    return table.text();
  }

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
