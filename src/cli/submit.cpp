// `tutti run` and `tutti submit`: from flags, files and scripts to a job.
#include <sys/random.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/bytes.hpp"
#include "cli/cluster.hpp"
#include "cli/commands.hpp"
#include "cli/explain.hpp"
#include "cli/follow.hpp"
#include "cli/jobfile/job_file.hpp"
#include "cli/jobfile/slurm_words.hpp"
#include "cli/recipe_file.hpp"
#include "cli/ship.hpp"
#include "cli/submit.hpp"
#include "cli/terminal.hpp"
#include "control/wire/replies.hpp"
#include "control/wire/requests.hpp"

namespace tutti::cli {
namespace {

Result<std::vector<cluster::JobSpec>> specs_of(jobfile::Draft& draft) {
  if (!draft.sync_folder.empty() && !draft.workdir.empty())
    return invalid("ranks of a job with sync start in the shipped folder: leave out one of the two")
        .within("workdir");
  std::error_code gone;
  const auto here = std::filesystem::current_path(gone);
  if (gone)
    return failed("the folder that this was called in cannot be named: " + gone.message())
        .remedy("somebody may have removed it: go to one that is there");
  auto specs = draft.finish();
  if (!specs) return specs;
  for (auto& spec : *specs) {
    spec.user = user_name();
    if (spec.workdir.empty()) spec.workdir = here.string();
    // A shipped folder goes with the job, and what was written into it too.
    if (!draft.sync_folder.empty() && !spec.output.empty()) spec.output = (here / spec.output).string();
  }
  return specs;
}

// What would happen to it, as an ExplainView. Nothing is shipped or changed.
Result<nlohmann::json> try_out(Cluster& cluster, jobfile::Draft& draft) {
  auto specs = specs_of(draft);
  if (!specs) return std::move(specs).error();
  auto request = wire::encode_submit({std::move(*specs)});
  if (!request) return std::move(request).error().within("dry run");
  auto answer = cluster.post_again("explain", *request);
  if (!answer) return std::move(answer).error().within("dry run");
  return answer;
}

// Whoever looks at a job does not see that no node takes any.
void tell_of_drained(Cluster& cluster) {
  const auto nodes = cluster.nodes();
  if (!nodes || nodes->at("nodes").empty()) return;
  for (const auto& node : nodes->at("nodes")) {
    const std::string state = node.value("state", "");
    if (state != "drained" && state != "draining") return;
  }
  print_note("all nodes are drained; `tutti resume NODE` lets jobs start there again");
}

// NAME alone is the variable as it is here.
Result<> take_from_environment(std::vector<std::string>& entries) {
  for (std::string& entry : entries) {
    if (entry.empty() || entry.find('=') != std::string::npos) continue;
    const char* value = std::getenv(entry.c_str());
    if (value == nullptr)
      return invalid("it is not set here").within("--env " + entry.substr(0, 64)).remedy("write NAME=VALUE");
    entry += "=" + std::string(value);
  }
  return {};
}

Result<std::string> make_key() {
  std::array<std::byte, 16> random;
  if (::getrandom(random.data(), random.size(), 0) != static_cast<ssize_t>(random.size()))
    return failed_errno("the system gives no random bytes", errno);
  return to_hex(random);
}

}  // namespace

Result<std::string> submit(Cluster& cluster, std::vector<cluster::JobSpec> specs) {
  auto key = make_key();
  if (!key) return std::move(key).error().within("submit");
  auto request = wire::encode_submit({std::move(specs), std::move(*key)});
  if (!request) return std::move(request).error().within("submit");
  // With its key it is done once, however often it is sent.
  auto answer = cluster.send_until_answered("POST", "jobs", *request, "submit");
  if (!answer && answer.error().code() == ErrorCode::unknown)
    return unknown("it is not known whether the job was accepted: " + answer.error().text())
        .within("submit")
        .remedy("`tutti jobs --all` shows it if it was");
  if (!answer) return std::move(answer).error().within("submit");
  auto ids = wire::decode_submitted(answer->dump());
  if (!ids || ids->empty()) return failed("the controller gave no id");
  return ids->front();
}

Result<int> print_id(const std::string& job) {
  if (std::printf("%s\n", job.c_str()) >= 0 && std::fflush(stdout) == 0) return exit_success;
  return failed_errno("its id cannot be written to standard output", errno)
      .within("job " + job + " is submitted")
      .remedy("`tutti cancel " + job + "` ends it");
}

Result<std::string> submit(Cluster& cluster, jobfile::Draft& draft) {
  auto specs = specs_of(draft);
  if (!specs) return std::move(specs).error();
  if (draft.sync_folder.empty()) return submit(cluster, std::move(*specs));
  for (bool again = false;; again = true) {
    auto manifest = ship(cluster, draft.sync_folder);
    if (!manifest) return std::move(manifest).error();
    for (auto& spec : *specs) spec.sync = *manifest;
    auto job = submit(cluster, *specs);
    // What the controller had may turn out damaged when it is looked at: it asks for it now.
    if (job || again || job.error().code() != ErrorCode::failed) return job;
  }
}

namespace {

class Run final : public Command {
 public:
  void declare(config::Flags& flags) override {
    draft_.declare(flags);
    jobfile::declare_slurm_hints(flags);
    flags.add("detach", detach_, "print the job's id and return");
    flags.add("no-prefix", no_prefix_, "do not put [rank] before each line");
    flags.add("dry-run", dry_run_,
              "submit nothing: tell whether it would wait, why, how long, and what would start it sooner");
    flags.add("json", json_, "with --dry-run: a JSON object");
    flags.add_rest("COMMAND", draft_.command, "what each rank runs, with its arguments");
  }

  Result<int> run() override {
    if (json_ && !dry_run_) return invalid("--json is for --dry-run").within("run");
    if (auto filled = take_from_environment(draft_.env); !filled)
      return std::move(filled).error().within("run");
    auto cluster = Cluster::find();
    if (!cluster) return std::move(cluster).error();
    if (dry_run_) {
      auto view = try_out(*cluster, draft_);
      if (!view) return std::move(view).error();
      if (json_) {
        std::printf("%s\n", view->dump().c_str());
      } else {
        print_text(explanation_text(*view));
        if (!view->value("starts_now", false)) tell_of_drained(*cluster);
      }
      return exit_success;
    }
    auto job = submit(*cluster, draft_);
    if (!job) return std::move(job).error();
    if (detach_ || !draft_.array.indices.empty()) return print_id(*job);
    return follow(
        *cluster,
        {.job = *job, .prefix = !no_prefix_, .cancels = true, .tells_wait = true, .was_there = true});
  }

 private:
  jobfile::Draft draft_;
  bool detach_ = false;
  bool no_prefix_ = false;
  bool dry_run_ = false;
  bool json_ = false;
};

class Submit final : public Command {
 public:
  void declare(config::Flags& flags) override {
    flags.add_rest("FILE", words_,
                   "a job file (.yaml) or a script with #TUTTI or #SBATCH lines, and the script's arguments");
    config::Flags of_run("run", "", "");
    jobfile::Draft unused;
    unused.declare(of_run);
    for (const std::string& name : of_run.names("--"))
      flags.add_hint(name,
                     "the file says it: `" + name.substr(2) + ": ...`, or a line `#TUTTI " + name + " ...`");
  }

  Result<int> run() override {
    auto file = jobfile::read_job_file(words_.front());
    if (!file && read_recipe(words_.front(), {}))
      return invalid("this is a recipe of a training, and no job file")
          .within(words_.front())
          .remedy("`tutti train " + words_.front() + "` trains it");
    if (!file) return std::move(file).error();
    for (const auto& warning : file->warnings) print_note(warning);
    if (file->is_yaml && words_.size() > 1)
      return invalid("a job file takes no further words, and there is '" + words_[1].substr(0, 64) + "'")
          .within(words_.front())
          .remedy("write them into the file: `gpus: 3` is --gpus 3");
    file->draft.command.insert(file->draft.command.end(), words_.begin() + 1, words_.end());
    auto cluster = Cluster::find();
    if (!cluster) return std::move(cluster).error();
    auto job = submit(*cluster, file->draft);
    if (!job) return std::move(job).error().within(words_.front());
    return print_id(*job);
  }

 private:
  std::vector<std::string> words_;
};

}  // namespace

std::unique_ptr<Command> make_run() { return std::make_unique<Run>(); }
std::unique_ptr<Command> make_submit() { return std::make_unique<Submit>(); }

}  // namespace tutti::cli
