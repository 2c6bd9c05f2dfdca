#include "learn/train/run_plan.hpp"

#include <cerrno>
#include <cstdio>

#include "base/files/files.hpp"
#include "base/json/parse.hpp"
#include "base/json/write.hpp"
#include "learn/checkpoint/folder.hpp"
#include "learn/checkpoint/read.hpp"
#include "learn/recipe/choose.hpp"
#include "learn/train/failure.hpp"

namespace tutti::train {
namespace {

constexpr std::size_t submission_bytes_max = std::size_t{1} << 22;

std::string read_text(const std::string& path) {
  auto text = files::read_existing_file(path, submission_bytes_max);
  if (!text) throw Failure(std::move(text).error().remedy("`tutti train` writes it into the run's folder"));
  return std::move(*text);
}

// A name beside the checkpoints that were moved away, so that what belongs together is seen.
void move_metrics_away(const std::string& folder, const std::string& checkpoints, const std::string& away) {
  const std::string metrics = folder + "/metrics.jsonl";
  const std::string moved = metrics + away.substr(checkpoints.size());
  if (std::rename(metrics.c_str(), moved.c_str()) != 0 && errno != ENOENT)
    throw Failure(failed_errno("cannot rename " + metrics, errno));
}

// What tells two submissions apart, also where an older copy of the cluster's store gives a number of a job
// out again.
std::string name_of_submission(const RunOptions& options) {
  return options.submission.substr(options.submission.rfind('/') + 1);
}

// Whether an attempt of the same job has claimed them: earlier versions did not note for which submission.
bool is_claimed_by_same(const RunOptions& options, const std::string& checkpoints) {
  const auto claimed = require(checkpoint::claimed_by(checkpoints));
  if (!claimed || options.fence.job == 0 || !same_job(*claimed, options.fence)) return false;
  const std::string submission = require(checkpoint::claimed_as(checkpoints));
  return submission.empty() || submission == name_of_submission(options);
}

// Once for a job: the attempts after its first go on with what it has made itself. What a newer one has made
// is not moved away, and with it the claim that keeps this one out.
void begin_from_scratch(const RunOptions& options, const std::optional<checkpoint::Fence>& over) {
  const std::string checkpoints = options.folder + "/checkpoints";
  if (is_claimed_by_same(options, checkpoints)) return;
  require_disk(checkpoint::check_claim(checkpoints, options.fence, over));
  const std::string away = require_disk(checkpoint::move_away(checkpoints));
  move_metrics_away(options.folder, checkpoints, away);
  std::printf("what the run had is in %s\n", away.c_str());
}

// A run goes on as it began, if the recipe leaves it open.
std::string precision_of(const RunOptions& options, const recipe::Recipe& recipe, recipe::Place place) {
  if (recipe.precision != "auto") return recipe.precision;
  const auto latest = checkpoint::open_latest(options.folder + "/checkpoints");
  // One that cannot be read just now says nothing of how the run began; damaged ones are set aside.
  if (!latest && latest.error().code() != ErrorCode::damaged) throw Failure(latest.error());
  if (latest && *latest) {
    const auto then = recipe::parse_recipe((*latest)->state().recipe);
    const bool possible = then && (then->precision == "f32" || place == recipe::Place::gpu);
    if (possible) return recipe::resolved(*then, place).precision;
  }
  return recipe::resolved(recipe, place).precision;
}

RunPlan decide(const RunOptions& options, const comm::Communicator& world,
               const recipe::Submission& submission) {
  RunPlan plan{.recipe = submission.recipe, .config = submission.config, .shape = {}, .mesh = {}};
  plan.shape = require(model::parse_config(plan.config));
  const auto over = passed_over_by(submission);
  if (submission.from_scratch) begin_from_scratch(options, over);
  // Before anything is written that tells of the run: who is fenced leaves it as it is.
  require_disk(
      checkpoint::claim(options.folder + "/checkpoints", options.fence, name_of_submission(options), over));
  const recipe::Place place = options.device < 0 ? recipe::Place::host : recipe::Place::gpu;
  plan.recipe.precision = precision_of(options, plan.recipe, place);
  plan.mesh = require(recipe::choose_mesh(plan.recipe, plan.shape,
                                          {.ranks = world.size(),
                                           .nodes = ranks_of_nodes(world),
                                           .placed = true,
                                           .place = place,
                                           .memory = options.memory}));
  if (plan.recipe.parallel != "auto" && plan.mesh != *plan::parse_mesh(plan.recipe.parallel)) {
    std::printf("mesh %s instead of %s: it is what these ranks on these nodes allow\n",
                plan.mesh.text().c_str(), plan.recipe.parallel.c_str());
  }
  // For people, and for what looks at a run without a job.
  require_disk(
      files::replace_file(options.folder + "/recipe.json", recipe::json_of(plan.recipe), {.mode = 0644}));
  require_disk(files::replace_file(options.folder + "/config.json", plan.config, {.mode = 0644}));
  return plan;
}

std::string encode(const RunPlan& plan) {
  return json::write(json::Object{
      {"recipe", recipe::json_of(plan.recipe)}, {"config", plan.config}, {"mesh", plan.mesh.text()}});
}

RunPlan decode(const std::string& text) {
  const auto value = json::parse(text);
  const auto field = [&](const char* key) {
    const json::Value* const found = value ? value->find(key) : nullptr;
    if (found == nullptr || found->text() == nullptr) throw Failure(failed("rank 0 tells no plan"));
    return *found->text();
  };
  RunPlan plan{.recipe = require(recipe::parse_recipe(field("recipe"))),
               .config = field("config"),
               .shape = {},
               .mesh = require(plan::parse_mesh(field("mesh")))};
  plan.shape = require(model::parse_config(plan.config));
  return plan;
}

}  // namespace

recipe::Submission read_submission(const RunOptions& options) {
  if (!options.submission.empty()) {
    auto parsed = recipe::parse_submission(read_text(options.submission));
    if (!parsed) throw Failure(std::move(parsed).error().within(options.submission));
    return std::move(*parsed);
  }
  recipe::Submission submission;
  submission.recipe = require(recipe::parse_recipe(read_text(options.folder + "/recipe.json")));
  submission.config = read_text(options.folder + "/config.json");
  return submission;
}

std::optional<checkpoint::Fence> passed_over_by(const recipe::Submission& submission) {
  if (!submission.take_over && !submission.from_scratch) return std::nullopt;
  return checkpoint::Fence::parse(submission.claim);
}

std::vector<int> ranks_of_nodes(const comm::Communicator& world) {
  std::vector<int> counts;
  for (int rank = 0; rank < world.size(); ++rank) {
    const bool same = rank > 0 && world.node(rank) == world.node(rank - 1);
    if (same) {
      ++counts.back();
    } else {
      counts.push_back(1);
    }
  }
  return counts;
}

RunPlan agree(const RunOptions& options, comm::Communicator& world, const recipe::Submission* submission) {
  std::string text;
  if (submission != nullptr) text = encode(decide(options, world, *submission));
  auto bytes = static_cast<std::int64_t>(text.size());
  require(world.broadcast(&bytes, 1, comm::DataType::i64, 0).wait());
  text.resize(static_cast<std::size_t>(bytes));
  require(world.broadcast(text.data(), text.size(), comm::DataType::u8, 0).wait());
  return decode(text);
}

}  // namespace tutti::train
