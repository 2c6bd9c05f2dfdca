// `tutti train`: from a recipe to a job that trains.
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

#include <nlohmann/json.hpp>

#include "base/files/files.hpp"
#include "cli/cluster.hpp"
#include "cli/commands.hpp"
#include "cli/follow.hpp"
#include "cli/jobfile/job_file.hpp"
#include "cli/recipe_file.hpp"
#include "cli/run_folder.hpp"
#include "cli/submit.hpp"
#include "cli/terminal.hpp"
#include "cli/worker_program.hpp"
#include "learn/dataset/dataset.hpp"
#include "learn/recipe/choose.hpp"

namespace tutti::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t config_bytes_max = std::size_t{1} << 20;
// A run goes on from its checkpoints: servers that die are no reason to give up.
constexpr std::int64_t restarts = 1000;
constexpr std::int64_t restarts_on_failure = 20;

// The text of the config.json that the recipe's model names; empty if it names a family.
Result<std::string> config_of(const recipe::Recipe& recipe) {
  if (model::family_of(recipe.model)) return std::string();
  fs::path path = recipe.model;
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) path /= "config.json";
  auto text = files::read_existing_file(path.string(), config_bytes_max);
  if (!text)
    return invalid(text.error().text())
        .remedy("model: is a family such as gpt2 or llama, or the path of a config.json");
  return text;
}

// What the cluster has, as far as a run is concerned.
struct Machines {
  int gpus = 0;
  std::vector<int> gpus_of_nodes;  // of those that have some
  std::int64_t gpu_memory = 0;     // of the smallest
  bool fake = false;               // some of them are not there, and their ranks compute on the host
  std::vector<std::int64_t> host_memory;
};

Machines machines_of(const nlohmann::json& nodes) {
  Machines machines;
  std::map<std::string, std::int64_t> memory_at;  // several nodes of one address are one host
  for (const auto& node : nodes.value("nodes", nlohmann::json::array())) {
    const auto devices = node.value("devices", nlohmann::json::array());
    memory_at[node.value("address", "")] = std::int64_t{node.value("memory_mib", 0)} << 20;
    machines.gpus += static_cast<int>(devices.size());
    if (!devices.empty()) machines.gpus_of_nodes.push_back(static_cast<int>(devices.size()));
    for (const auto& device : devices) {
      machines.fake = machines.fake || device.value("fake", false);
      const std::int64_t bytes = std::int64_t{device.value("memory_mib", 0)} << 20;
      if (bytes > 0 && (machines.gpu_memory == 0 || bytes < machines.gpu_memory)) machines.gpu_memory = bytes;
    }
  }
  for (const auto& [address, bytes] : memory_at) machines.host_memory.push_back(bytes);
  return machines;
}

class Train final : public Command {
 public:
  void declare(config::Flags& flags) override {
    flags.add_word("CONFIG", config_, "a recipe in YAML; `tutti train --keys` lists its keys", false);
    flags.add("gpus", gpus_, "train on so many GPUs, a rank on each", {.min = 1, .max = plan::ranks_max});
    flags.add("ranks", ranks_, "train on so many ranks without GPUs", {.min = 1, .max = plan::ranks_max});
    flags.add("steps", steps_, "instead of the recipe's steps", {.min = 1});
    flags.add("resume", resume_, "go on with a run that has checkpoints");
    flags.add("from-scratch", from_scratch_,
              "begin a run anew that has checkpoints; they stay in its folder under another name");
    flags.add("take-over", take_over_, "take the run's folder from a training that surely runs no more");
    flags.add("set", settings_, "key=value, over the recipe's; may be given several times");
    flags.add("fixed", fixed_, "wait for all ranks after a server died, instead of going on with fewer");
    flags.add("name", name_, "of the job (default: the run's folder)");
    flags.add("queue", queue_, "that the job waits in");
    flags.add("priority", priority_, "higher starts first");
    flags.add("detach", detach_, "print the job's id and return");
    flags.add("keys", keys_, "list the keys of a recipe");
  }

  Result<int> run() override {
    if (keys_) {
      std::fputs(describe_recipe_keys().c_str(), stdout);
      return exit_success;
    }
    if (config_.empty()) {
      return invalid("CONFIG is missing")
          .within("command line")
          .remedy("`tutti train --help` shows the usage");
    }
    if (gpus_ > 0 && ranks_ > 0)
      return invalid("--gpus and --ranks exclude each other").within("command line");
    if (resume_ && from_scratch_)
      return invalid("--resume and --from-scratch exclude each other").within("command line");
    if (steps_ > 0) settings_.push_back("steps=" + std::to_string(steps_));
    auto recipe = read_recipe(config_, settings_);
    if (!recipe && jobfile::read_job_file(config_))
      return invalid("this is a job file, and no recipe of a training")
          .within(config_)
          .remedy("`tutti submit " + config_ +
                  "` submits it; `tutti train --keys` lists the keys of a recipe");
    if (!recipe) return std::move(recipe).error();
    auto shape = shape_of(*recipe);
    if (!shape) return std::move(shape).error();
    auto cluster = Cluster::find();
    if (!cluster) return std::move(cluster).error();
    auto nodes = cluster->nodes();
    if (!nodes) return std::move(nodes).error();
    auto draft = plan(*recipe, *shape, machines_of(*nodes));
    if (!draft) return std::move(draft).error();
    if (auto fine = check_run_folder(*cluster, *recipe, *shape, asked()); !fine)
      return std::move(fine).error();
    if (const auto step = last_step(recipe->run); resume_ && step && *step >= recipe->steps) {
      print_note(recipe->run + " : the run is complete, step " + std::to_string(*step) + " of " +
                 std::to_string(recipe->steps) + "; --steps N goes on to more");
      return exit_success;
    }
    auto submission = write_submission({.recipe = *recipe,
                                        .config = model::config_json(*shape),
                                        .from_scratch = from_scratch_ && !is_new_run(recipe->run),
                                        .take_over = take_over_});
    if (!submission) return std::move(submission).error();
    draft->command.push_back(*submission);
    auto job = submit(*cluster, *draft);
    if (!job) {
      drop_submission(*submission, job.error());
      return std::move(job).error();
    }
    if (detach_) return print_id(*job);
    return follow(*cluster, {.job = *job,
                             .rank = 0,
                             .prefix = false,
                             .cancels = true,
                             .tells_wait = true,
                             .live_line = "step ",
                             .was_there = true});
  }

 private:
  static Result<model::Shape> shape_of(const recipe::Recipe& recipe) {
    auto data = dataset::Dataset::open(recipe.data);
    if (!data) return std::move(data).error();
    auto config = config_of(recipe);
    if (!config) return std::move(config).error();
    return recipe::shape_of(recipe, *config, data->vocabulary());
  }

  // How many ranks, and whether the model fits.
  Result<jobfile::Draft> plan(const recipe::Recipe& recipe, const model::Shape& shape,
                              const Machines& machines) const {
    const bool on_gpus = ranks_ == 0 && (gpus_ > 0 || machines.gpus > 0);
    std::int64_t ranks = on_gpus ? gpus_ : ranks_;
    if (ranks == 0 && recipe.parallel != "auto") ranks = plan::parse_mesh(recipe.parallel)->size();
    if (ranks == 0) ranks = on_gpus ? machines.gpus : 1;
    const bool in_gpu_memory = on_gpus && !machines.fake;
    const std::int64_t of_host = recipe::memory_of_each(machines.host_memory, static_cast<int>(ranks));
    recipe::Ground ground{.ranks = static_cast<int>(ranks),
                          .nodes = on_gpus ? machines.gpus_of_nodes : std::vector<int>(),
                          .placed = false,
                          .place = in_gpu_memory ? recipe::Place::gpu : recipe::Place::host,
                          .memory = in_gpu_memory ? machines.gpu_memory : of_host,
                          .host_memory = in_gpu_memory ? of_host : 0};
    auto mesh = recipe::choose_mesh(recipe, shape, ground);
    if (!mesh) return std::move(mesh).error();
    jobfile::Draft draft;
    // The slices of a layer lie on one node.
    const auto arranged = recipe::arrange(ground, mesh->tensor).value_or(recipe::Arrangement());
    draft.nodes = arranged.nodes;
    draft.ranks_per_node = arranged.ranks_per_node;
    const std::vector<int> counts =
        fixed_ ? std::vector<int>{ground.ranks} : rank_counts(recipe, shape, ground);
    draft.rank_counts.assign(counts.begin(), counts.end());
    if (on_gpus) draft.gpu_share = 1000;
    draft.name = name_.empty() ? fs::path(recipe.run).filename().string() : name_;
    draft.queue = queue_;
    draft.priority = priority_;
    draft.restarts = restarts;
    draft.restart_on_failure = restarts_on_failure;
    draft.grace = 60s;  // for a checkpoint
    draft.yields = true;
    draft.command = {worker_program(), "train", recipe.run, std::to_string(ground.memory)};
    return draft;
  }

  RunFolderAsk asked() const {
    return {.resume = resume_, .from_scratch = from_scratch_, .take_over = take_over_};
  }

  std::string config_;
  std::int64_t gpus_ = 0;
  std::int64_t ranks_ = 0;
  std::int64_t steps_ = 0;
  bool resume_ = false;
  bool from_scratch_ = false;
  bool take_over_ = false;
  std::vector<std::string> settings_;
  bool fixed_ = false;
  std::string name_;
  std::string queue_ = "default";
  std::int64_t priority_ = 0;
  bool detach_ = false;
  bool keys_ = false;
};

}  // namespace

std::unique_ptr<Command> make_train() { return std::make_unique<Train>(); }

}  // namespace tutti::cli
