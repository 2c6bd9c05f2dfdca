// `tutti cancel` and `tutti release`: jobs are ended, or let go.
#include <chrono>
#include <optional>

#include "cli/commands.hpp"
#include "cli/job_reading.hpp"
#include "cli/terminal.hpp"

namespace tutti::cli {
namespace {

using nlohmann::json;

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

class Cancel final : public Command {
 public:
  void declare(config::Flags& flags) override {
    flags.add_words("JOB", jobs_, "ids of jobs");
    flags.add("array", array_, "every element of the array that each belongs to");
    flags.add("now", now_,
              "kill them at once, without the grace period; also those that are being cancelled");
  }

  Result<int> run() override {
    auto cluster = Cluster::find();
    if (!cluster) return std::move(cluster).error();
    return for_each_of(jobs_, "cancel", [&](const std::string& word) -> Result<json> {
      auto named = job_id(*cluster, word);
      if (!named) return std::move(named).error();
      const std::string& job = *named;
      auto cancelled = cluster->post("jobs/" + url_encode(job) + "/cancel?by=" + url_encode(user_name()) +
                                     (array_ ? "&array=1" : "") + (now_ ? "&now=1" : ""));
      if (cancelled && !now_) tell_grace(*cluster, (*cancelled)["ids"]);
      return cancelled;
    });
  }

 private:
  // What has not ended at once has been asked to. The elements of an array have the same grace period.
  void tell_grace(Cluster& cluster, const json& ids) const {
    if (!ids.is_array() || ids.empty()) return;
    const std::string id = ids.front().get<std::string>();
    const auto job = cluster.get("jobs/" + url_encode(id));
    if (!job || job->contains("finished_at")) return;
    const auto grace = std::chrono::duration<double>(job->value("grace_s", 0.0));
    print_note("job " + id + (ids.size() > 1 ? " and the others are" : " is") +
               " asked to end and may take " +
               format_duration(std::chrono::round<std::chrono::milliseconds>(grace)) +
               "; `tutti cancel --now " + (array_ ? "--array " : "") + id + "` kills at once");
  }

  std::vector<std::string> jobs_;
  bool array_ = false;
  bool now_ = false;
};

class Release final : public Command {
 public:
  void declare(config::Flags& flags) override {
    flags.add_words("JOB", jobs_, "ids of jobs");
    flags.add("array", array_, "every element of the array that each belongs to, if it is held or waits");
  }

  Result<int> run() override {
    auto cluster = Cluster::find();
    if (!cluster) return std::move(cluster).error();
    return for_each_of(jobs_, "release", [&](const std::string& job) {
      return cluster->post("jobs/" + url_encode(job) + "/release" + (array_ ? "?array=1" : ""));
    });
  }

 private:
  std::vector<std::string> jobs_;
  bool array_ = false;
};

}  // namespace

std::unique_ptr<Command> make_cancel() { return std::make_unique<Cancel>(); }
std::unique_ptr<Command> make_release() { return std::make_unique<Release>(); }

}  // namespace tutti::cli
