// `tutti explain`: why a job waits, when it is expected to start, and what would start it sooner.
#include "cli/explain.hpp"

#include <cstdio>

#include <nlohmann/json.hpp>

#include "cli/cluster.hpp"
#include "cli/commands.hpp"
#include "cli/local_time.hpp"
#include "cli/terminal.hpp"

namespace tutti::cli {
namespace {

using nlohmann::json;

// Its first line: what holds it back.
std::string head(const json& view) {
  const std::string id = view.value("id", "");
  const std::string why = with_local_times(view.value("why", ""));
  if (view.value("starts_now", false)) return id.empty() ? "it would start now" : "job " + id + " starts now";
  return (id.empty() ? "it would wait: " : "job " + id + " waits: ") + why;
}

// "behind 3 jobs: 4, 5, 6".
std::string place_in_line(const json& view) {
  const int ahead = view.value("ahead", 0);
  if (ahead == 0) return "first in line";
  std::string text = "behind " + std::to_string(ahead) + (ahead == 1 ? " job: " : " jobs: ");
  const auto& ids = view.at("ahead_ids");
  for (std::size_t at = 0; at < ids.size(); ++at) text += (at == 0 ? "" : ", ") + ids[at].get<std::string>();
  return text + (static_cast<std::size_t>(ahead) > ids.size() ? ", …" : "");
}

// A job that runs or has ended.
std::string settled_text(const json& view) {
  const std::string state = view.value("state", "");
  const std::string why = view.value("why", "");
  const bool runs = state == "starting" || state == "running";
  return "job " + view.value("id", "") + " waits for nothing: it " + (runs ? "is " : "has ended, ") + state +
         (why.empty() ? "" : "; " + why) + "\n";
}

class Explain final : public Command {
 public:
  void declare(config::Flags& flags) override {
    flags.add_word("JOB", job_, "the job's id");
    flags.add("json", json_, "a JSON object");
  }

  Result<int> run() override {
    auto cluster = Cluster::find();
    if (!cluster) return std::move(cluster).error();
    auto view = cluster->get("jobs/" + url_encode(job_) + "/explain");
    if (!view) return std::move(view).error().within("explain " + job_);
    if (json_) {
      std::printf("%s\n", view->dump().c_str());
    } else {
      print_text(explanation_text(*view));
    }
    return exit_success;
  }

 private:
  std::string job_;
  bool json_ = false;
};

}  // namespace

std::string expected_text(const json& view) {
  if (view.value("starts_now", false)) return "now";
  if (view.contains("expected_start")) return local_time(view.at("expected_start").get<std::string>());
  return "unknown: " + view.value("unknown", "");
}

std::string explanation_text(const json& view) {
  const std::string state = view.value("state", "");
  if (!state.empty() && state != "queued" && state != "restarting") return settled_text(view);
  std::string text = head(view) + "\n";
  if (view.value("starts_now", false)) return text;
  text += "  queue     " + view.value("queue", "") + ", " + place_in_line(view) + "\n";
  text += "  expected  " + expected_text(view) + "\n";
  std::string title = "  sooner    ";
  for (const auto& suggestion : view.at("suggestions")) {
    const std::string start =
        suggestion.value("now", false) ? "now" : local_time(suggestion.value("start", ""));
    text += title + suggestion.value("change", "") + ": " + start + "\n";
    title.assign(title.size(), ' ');
  }
  return text;
}

std::unique_ptr<Command> make_explain() { return std::make_unique<Explain>(); }

}  // namespace tutti::cli
