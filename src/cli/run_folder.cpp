#include "cli/run_folder.hpp"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/clock/clock.hpp"
#include "base/files/descriptor.hpp"
#include "base/files/files.hpp"
#include "base/files/inside.hpp"
#include "base/files/names.hpp"
#include "cli/local_time.hpp"
#include "cli/terminal.hpp"
#include "learn/checkpoint/folder.hpp"
#include "learn/checkpoint/owner.hpp"
#include "learn/checkpoint/read.hpp"

namespace tutti::cli {
namespace {

constexpr const char* submitted_name = ".submitted";

// An owner beats every five seconds: one that does not within two beats is left to the ranks, which wait
// longer.
constexpr auto owner_watch = std::chrono::seconds(11);
constexpr auto owner_look_every = std::chrono::milliseconds(250);

// Whether the cluster knows the job that the owner names, and knows that it is over.
bool is_over(Cluster& cluster, const std::string& run, const checkpoint::Owner& owner) {
  if (owner.fence.job == 0) return false;
  const auto job = cluster.get("jobs/" + std::to_string(owner.fence.job));
  if (!job) return false;
  const std::string state = job->value("state", "");
  const bool ended = state == "succeeded" || state == "failed" || state == "cancelled";
  // Another cluster has a job of that number too.
  const auto command = job->value("command", nlohmann::json::array());
  return ended && std::find(command.begin(), command.end(), run) != command.end();
}

Result<> check_nobody_trains(Cluster& cluster, const std::string& run) {
  const auto first = checkpoint::owner_of(run);
  if (!first) return first.error();
  if (!*first || is_over(cluster, run, (*first)->owner)) return {};
  const std::string who = (*first)->owner.text();
  print_note(run + " : " + who + " trained in this folder: a look whether it still does");
  checkpoint::OwnerWatch watch(owner_look_every);
  for (;;) {
    const auto now = checkpoint::owner_of(run);
    if (!now) return now.error();
    if (!*now) return {};
    const auto still = watch.still_for(**now, SteadyClock::now().time_since_epoch());
    if (!still) {
      return invalid((*now)->owner.text() + " trains in this folder since " +
                     local_date_time(format_instant(Instant(std::chrono::seconds((*now)->owner.since_s)))))
          .within(run)
          .remedy(
              "wait for it or cancel it, train elsewhere with --set run=ANOTHER, or take the folder with "
              "--take-over if it surely runs no more");
    }
    if (*still >= owner_watch) return {};
    std::this_thread::sleep_for(owner_look_every);
  }
}

Result<> check_model(const std::string& checkpoints, const model::Shape& shape) {
  const auto latest = checkpoint::open_latest(checkpoints);
  // Ones that are damaged are set aside by the ranks, or refused there.
  if (!latest || !*latest) return {};
  const auto then = model::parse_config((*latest)->state().model_config);
  if (!then) return {};
  const std::string other = model::difference(*then, shape);
  if (other.empty()) return {};
  return invalid("its checkpoints are of another model: " + other)
      .within(checkpoints)
      .remedy("--set run=ANOTHER begins another run; --from-scratch begins this one anew");
}

Result<> check_checkpoints(const std::string& run, const model::Shape& shape, const RunFolderAsk& ask) {
  const std::string checkpoints = run + "/checkpoints";
  const auto steps = checkpoint::steps_in(checkpoints);
  if (!steps) return steps.error();
  if (ask.from_scratch) return {};
  if (!steps->empty() && !ask.resume) {
    return invalid("there is a run in it, with a checkpoint of step " + std::to_string(steps->back()))
        .within(run)
        .remedy(
            "--resume goes on with it; --set run=ANOTHER begins a new one; --from-scratch begins it anew");
  }
  if (!steps->empty()) return check_model(checkpoints, shape);
  const auto had = checkpoint::had_step(checkpoints);
  if (!had) return had.error();
  if (*had) {
    return invalid("the run had a checkpoint of step " + std::to_string(**had) + ", and has none now")
        .within(run)
        .remedy("put it back and --resume, or --from-scratch begins it anew");
  }
  if (ask.resume) {
    return invalid("there is no checkpoint to go on with").within(run).remedy("without --resume it begins");
  }
  return {};
}

// Every run has one of these; neither is in a folder that somebody filled with things of his own.
Result<bool> is_run(const std::string& run) {
  if (access((run + "/" + submitted_name).c_str(), F_OK) == 0) return true;
  const auto steps = checkpoint::steps_in(run + "/checkpoints");
  if (!steps) return steps.error();
  if (!steps->empty()) return true;
  const auto had = checkpoint::had_step(run + "/checkpoints");
  if (!had) return had.error();
  return had->has_value();
}

// A training writes config.json, metrics.jsonl and more, over what has these names.
Result<> check_own(const std::string& run, const std::string& data) {
  if (files::is_inside(run, data))
    return invalid("the folder of the run lies in that of the dataset")
        .within(run)
        .remedy("a run needs a folder of its own: --set run=ANOTHER");
  const auto names = files::list_folder(run);
  if (!names) return names.error();
  if (!*names) return {};
  // A disk of its own has that one from the beginning.
  const auto first = std::find_if((*names)->begin(), (*names)->end(),
                                  [](const std::string& name) { return name != "lost+found"; });
  if (first == (*names)->end()) return {};
  const auto own = is_run(run);
  if (!own) return own.error();
  if (*own) return {};
  return invalid("the folder is no run of a training, and holds " + files::shown(*first))
      .within(run)
      .remedy("a run needs a folder of its own: --set run=ANOTHER");
}

}  // namespace

Result<> check_run_folder(Cluster& cluster, const recipe::Recipe& recipe, const model::Shape& shape,
                          const RunFolderAsk& ask) {
  const std::string& run = recipe.run;
  if (auto own = check_own(run, recipe.data); !own) return own;
  if (auto made = files::make_folders(run); !made) return made;
  if (auto fine = check_checkpoints(run, shape, ask); !fine) return fine;
  if (ask.take_over) return {};
  return check_nobody_trains(cluster, run);
}

std::optional<std::int64_t> last_step(const std::string& run) {
  const auto latest = checkpoint::open_latest(run + "/checkpoints");
  if (!latest || !*latest) return std::nullopt;
  return (*latest)->state().step;
}

bool is_new_run(const std::string& run) {
  return access((run + "/checkpoints").c_str(), F_OK) != 0 &&
         access((run + "/metrics.jsonl").c_str(), F_OK) != 0;
}

Result<std::string> write_submission(const recipe::Submission& submission) {
  const auto claimed = checkpoint::claimed_by(submission.recipe.run + "/checkpoints");
  if (!claimed) return claimed.error();
  recipe::Submission told = submission;
  if (*claimed) told.claim = (*claimed)->line();
  const std::string folder = submission.recipe.run + "/" + submitted_name;
  if (auto made = files::make_folders(folder); !made) return std::move(made).error();
  constexpr std::string_view ending = ".json";
  std::string path = folder + "/XXXXXX" + std::string(ending);
  const files::FileDescriptor file(mkostemps(path.data(), static_cast<int>(ending.size()), O_CLOEXEC));
  if (!file.valid()) return failed_errno("cannot write " + path, errno);
  const std::string text = recipe::json_of(told);
  auto written = files::write_all(file.get(), std::as_bytes(std::span(text)), path);
  // Ranks of other users of the cluster's nodes read it too.
  if (written && fchmod(file.get(), 0644) != 0) written = failed_errno("cannot write " + path, errno);
  if (written) written = files::sync_file(file.get(), path);
  if (!written) {
    unlink(path.c_str());
    return std::move(written).error();
  }
  return path;
}

void drop_submission(const std::string& path, const Error& why) {
  if (why.code() != ErrorCode::unknown) unlink(path.c_str());
}

}  // namespace tutti::cli
