#include "learn/train/trainer.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <optional>
#include <utility>

#include "base/clock/clock.hpp"
#include "base/prng.hpp"
#include "base/text.hpp"
#include "learn/checkpoint/import.hpp"
#include "learn/checkpoint/manifest.hpp"
#include "learn/dataset/dataset.hpp"
#include "learn/dataset/order.hpp"
#include "learn/train/failure.hpp"
#include "learn/train/initial_values.hpp"
#include "learn/train/last_save.hpp"
#include "learn/train/math.hpp"
#include "learn/train/replay.hpp"
#include "learn/train/resume.hpp"
#include "learn/train/run_plan.hpp"
#include "learn/train/same_files.hpp"
#include "learn/train/saver.hpp"
#include "learn/train/transformer.hpp"

namespace tutti::train {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double print_every_s = 1.0;
// Far below what the other ranks wait for this one.
constexpr auto metrics_patience = std::chrono::seconds(5);

// What the samples of a step were, as a sum that does not depend on their order, exact as a double.
double sum_of_samples(const std::vector<std::uint64_t>& samples) {
  double sum = 0;
  for (const std::uint64_t sample : samples) sum += static_cast<double>(mixed(sample) & 0xffffffffU);
  return sum;
}

class Trainer {
 public:
  Trainer(const RunOptions& options, RunPlan plan, comm::Communicator world, const Ownership* owner);
  Ending run(const std::function<bool()>& stop);

 private:
  struct Batch {
    std::vector<Microbatch> microbatches;
    std::vector<std::uint64_t> samples;
  };
  // What all ranks know after the forward pass.
  struct Shared {
    double loss = 0;
    std::uint64_t data = 0;
    bool stop = false;
  };

  void build();
  void load();
  void load_initial_values();
  Ending take_steps(const std::function<bool()>& stop);
  void give_up(const Error& error);
  void check_owner() const;
  void count_bad_step(double loss, double norm);
  Batch batch_at(std::uint64_t samples_seen) const;
  Shared share(double loss_sum, const Batch& batch, bool stop);
  void check_replay(double loss);
  void save();
  void finish_saving(const std::function<bool()>& stop);
  void tell(const std::string& line) const;
  void report(const StepMetrics& metrics, bool force);
  void tell_missing_metrics();
  bool flush_metrics();
  std::string progress(const StepMetrics& metrics) const;
  checkpoint::State state() const;
  void say(const std::string& line) const;
  std::string checkpoints() const { return options_.folder + "/checkpoints"; }
  double rows_of_step() const { return static_cast<double>(recipe_.batch * recipe_.context); }

  RunOptions options_;
  const Ownership* owner_;  // of rank 0
  comm::Communicator world_;
  int rank_;
  int ranks_;
  recipe::Recipe recipe_;
  std::string config_;
  model::Shape shape_;
  plan::Mesh mesh_;
  dataset::Dataset data_;
  dataset::Order order_;
  at::Device device_ = at::kCPU;
  Groups groups_;
  std::optional<Saver> saver_;
  std::optional<Transformer> model_;
  std::optional<MetricsWriter> metrics_;  // of rank 0
  std::int64_t microbatch_ = 1;
  std::int64_t step_ = 0;  // done so far
  std::uint64_t samples_seen_ = 0;
  std::optional<checkpoint::State> replay_;  // what the first step must repeat
  Clock::time_point started_ = Clock::now();
  std::int64_t started_at_ = 0;
  Clock::time_point printed_{};
  StepMetrics last_{};
  std::int64_t resumed_at_ = -1;  // the checkpoint that the run went on from
  std::int64_t saving_ = -1;      // the step that was saved last, whether that ended well or not
  std::int64_t unsaved_ = -1;     // the last one that could not be
  std::int64_t told_step_ = -1;   // the checkpoint that the agent was last shown
  std::int64_t skipped_ = 0;      // steps whose gradients were not finite
  std::int64_t bad_in_row_ = 0;   // the last ones of them
  double peak_ = 0;               // of one device, in operations a second; 0: not known
};

Trainer::Trainer(const RunOptions& options, RunPlan plan, comm::Communicator world, const Ownership* owner)
    : options_(options),
      owner_(owner),
      world_(std::move(world)),
      rank_(world_.rank()),
      ranks_(world_.size()),
      recipe_(std::move(plan.recipe)),
      config_(std::move(plan.config)),
      shape_(plan.shape),
      mesh_(plan.mesh),
      data_(require(dataset::Dataset::open(recipe_.data))) {
  if (auto built = caught([&] { build(); }); !built) give_up(built.error());
}

// While everything is still there: what is taken apart from here on may wait for the others, and they for
// this rank.
void Trainer::give_up(const Error& error) {
  world_.abort(error.text());
  if (options_.failing) options_.failing(error);
  throw Failure(error);
}

void Trainer::build() {
  require_same(world_, "the dataset", recipe_.data, data_.fingerprint().hex());
  if (data_.vocabulary() > shape_.vocabulary)
    throw Failure(invalid("the data has more tokens than the model"));
  const auto length = static_cast<std::uint64_t>(recipe_.context);
  if (data_.tokens() <= length) {
    throw Failure(invalid("the data has " + std::to_string(data_.tokens()) + " tokens, a sequence needs " +
                          std::to_string(length + 1))
                      .within(recipe_.data));
  }
  order_ = {.seed = static_cast<std::uint64_t>(recipe_.seed), .samples = (data_.tokens() - 1) / length};

  device_ = options_.device < 0 ? at::Device(at::kCPU)
                                : at::Device(at::kCUDA, static_cast<at::DeviceIndex>(options_.device));
  microbatch_ = recipe::microbatch_of(recipe_, mesh_);
  if (recipe_.precision == "bf16" && device_.is_cpu()) {
    throw Failure(invalid("bf16 needs a GPU").remedy("precision: f32 trains on the host"));
  }

  saver_.emplace(SaverOptions{checkpoints(), options_.fence, recipe_.checkpoints_kept}, world_);
  groups_ = Groups::make(world_, mesh_);
  TransformerOptions model{
      .setup = Setup::make(shape_, groups_, microbatch_, recipe_.context, device_),
      .keeping = {.zero = static_cast<Zero>(recipe_.zero),
                  .device = device_,
                  .type = recipe_.precision == "bf16" ? at::kBFloat16 : at::kFloat,
                  .microbatches = static_cast<int>(recipe_.batch / mesh_.data / microbatch_)},
      .parts = static_cast<int>(recipe_.interleave)};
  model.setup.recompute = recipe_.recompute;
  peak_ = math::peak_operations(device_, model.keeping.type);
  model_.emplace(std::move(model), groups_);
  load();
  saver_->prepare(model_->parameters());
  if (rank_ == 0) {
    const auto file = std::make_shared<MetricsFile>(
        require_disk(MetricsFile::open(options_.folder + "/metrics.jsonl", step_)));
    skipped_ = file->skipped();
    metrics_.emplace(
        require(MetricsWriter::start([file](const std::string& line) { return file->append(line); })));
  }
}

void Trainer::say(const std::string& line) const {
  if (rank_ != 0) return;
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

// ---- where the state comes from

void Trainer::load() {
  say("mesh " + groups_.mesh.text() + " of " + std::to_string(ranks_) + " rank(s), " +
      std::to_string(model::parameters(shape_)) + " parameters, " + recipe_.precision + ", zero " +
      std::to_string(recipe_.zero) + ", microbatches of " + std::to_string(microbatch_) + " sequence(s)");
  const ResumeOptions from{.checkpoints = checkpoints(), .shape = shape_};
  if (const auto state =
          resume(from, world_, model_->parameters(), [this](const std::string& line) { say(line); })) {
    if (state->seed != order_.seed) throw Failure(invalid("the checkpoint was made with another seed"));
    step_ = resumed_at_ = state->step;
    samples_seen_ = state->samples_seen;
    replay_ = *state;
  } else {
    load_initial_values();
  }
  model_->parameters().publish();
}

void Trainer::load_initial_values() {
  Parameters::Source source = initial_values(static_cast<std::uint64_t>(recipe_.seed));
  std::optional<checkpoint::ForeignWeights> foreign;
  if (!recipe_.weights.empty()) {
    foreign = require(checkpoint::ForeignWeights::open(recipe_.weights, shape_));
    require_same(world_, "what the weights begin with", recipe_.weights,
                 require(foreign->fingerprint()).hex());
    source = [&foreign](Kind, const model::Tensor& tensor, const checkpoint::Box& box, std::span<float> out) {
      require(foreign->read(tensor.name, box, out));
    };
  }
  const Filled filled = fill_everywhere(world_, model_->parameters(), source, false);
  if (!filled.problem.empty()) throw Failure(failed(filled.problem).within("initial weights"));
}

// ---- a step

Trainer::Batch Trainer::batch_at(std::uint64_t samples_seen) const {
  const std::int64_t replica = recipe_.batch / groups_.mesh.data;
  const std::int64_t length = recipe_.context;
  Batch batch;
  std::vector<std::uint32_t> window(static_cast<std::size_t>(length + 1));
  const auto first = samples_seen + static_cast<std::uint64_t>(replica * groups_.place.replica);
  for (std::int64_t begin = 0; begin < replica; begin += microbatch_) {
    at::Tensor tokens = at::empty({microbatch_ * length}, at::kLong);
    at::Tensor targets = at::empty({microbatch_ * length}, at::kLong);
    for (std::int64_t i = 0; i < microbatch_; ++i) {
      const std::uint64_t sample = order_.sample(first + static_cast<std::uint64_t>(begin + i));
      batch.samples.push_back(sample);
      data_.read(sample * static_cast<std::uint64_t>(length), window);
      std::copy(window.begin(), window.end() - 1, tokens.data_ptr<std::int64_t>() + i * length);
      std::copy(window.begin() + 1, window.end(), targets.data_ptr<std::int64_t>() + i * length);
    }
    batch.microbatches.push_back({tokens.to(device_), targets.to(device_)});
  }
  return batch;
}

Trainer::Shared Trainer::share(double loss_sum, const Batch& batch, bool stop) {
  // One rank of each replica counts: the slices and stages of a replica see the same samples.
  const bool counts = groups_.place.slice == 0;
  const bool first_stage = groups_.place.stage == 0;
  at::Tensor sums = at::zeros({3}, at::kDouble);
  auto* const values = sums.data_ptr<double>();
  values[0] = counts ? loss_sum : 0.0;
  values[1] = counts && first_stage ? sum_of_samples(batch.samples) : 0.0;
  values[2] = stop ? 1.0 : 0.0;
  groups_.world.all_reduce(sums);
  groups_.world.check();  // the loss was computed from what came over devices
  return {values[0] / rows_of_step(), static_cast<std::uint64_t>(values[1]), values[2] > 0};
}

// The first step after loading must give the loss that was recorded when the state was saved.
void Trainer::check_replay(double loss) {
  if (!replay_) return;
  const checkpoint::State recorded = *std::exchange(replay_, std::nullopt);
  if (std::isnan(recorded.loss)) return;
  const recipe::Recipe then = require(recipe::parse_recipe(recorded.recipe));
  if (recorded.data_fingerprint != data_.fingerprint().hex() || then.batch != recipe_.batch ||
      then.context != recipe_.context || then.precision != recipe_.precision) {
    return say("the data or the batch is another one than before: the loss cannot be compared");
  }
  const bool same_mesh = recorded.mesh == groups_.mesh.text() && then.zero == recipe_.zero;
  std::array<char, 160> numbers{};
  std::snprintf(numbers.data(), numbers.size(),
                "step %lld gives a loss of %.9g, and gave %.9g when it was saved",
                static_cast<long long>(recorded.step + 1), loss, recorded.loss);
  const Replay replay =
      compare_losses(loss, recorded.loss, {.bf16 = recipe_.precision == "bf16", .same_mesh = same_mesh});
  if (replay == Replay::another) {
    throw Failure(
        invalid(numbers.data()).within("resume").remedy("the state is not what it was: the run stops here"));
  }
  say(std::string("replayed: ") + numbers.data());
  if (replay == Replay::rounded)
    say("that is more than rounding on the same machine explains: other CPUs or GPUs than before do");
}

checkpoint::State Trainer::state() const {
  return {.step = step_,
          .attempt = options_.fence.attempt,
          .mesh = groups_.mesh.text(),
          .samples_seen = samples_seen_,
          .tokens_seen = samples_seen_ * static_cast<std::uint64_t>(recipe_.context),
          .seed = order_.seed,
          .data_fingerprint = data_.fingerprint().hex(),
          .recipe = recipe::json_of(recipe_),
          .model_config = config_};
}

void Trainer::save() {
  static_cast<void>(flush_metrics());
  const double stall = saver_->begin(model_->parameters(), state());
  std::array<char, 96> line{};
  std::snprintf(line.data(), line.size(), "checkpoint of step %lld: training waited %.0f ms",
                static_cast<long long>(step_), stall * 1e3);
  say(line.data());
  const std::int64_t before = std::exchange(saving_, step_);
  const auto problem = saver_->take_problem();
  if (!problem) return;
  // Somebody else has the folder: nothing that this attempt computes can be saved any more.
  if (problem->code() == ErrorCode::invalid) throw Failure(*problem);
  unsaved_ = before;
  say("checkpoint failed, training goes on: " + problem->text());
}

// The last checkpoint is committed with the loss of a step that is not taken any more.
void Trainer::finish_saving(const std::function<bool()>& stop) {
  if (saver_->waits_for_loss()) {
    const Batch next = batch_at(samples_seen_);
    saver_->provide_loss(share(model_->evaluate(next.microbatches), next, false).loss);
  }
  const bool tried_again = finish_last_save(*saver_, groups_.world,
                                            {.patience = options_.last_save,
                                             .rank = rank_,
                                             .folder = checkpoints(),
                                             .stop = stop,
                                             .check = [this] { check_owner(); },
                                             .tell = [this](const std::string& line) { tell(line); }});
  if (tried_again) tell(progress(last_));
  if (!flush_metrics())
    say("warning: the disk does not take metrics: those of the last steps may be missing");
  say("checkpoint of step " + std::to_string(step_) + " is in " + checkpoints());
}

std::string Trainer::progress(const StepMetrics& m) const {
  const double per_step =
      seconds_since(started_) / static_cast<double>(std::max<std::int64_t>(1, m.step - started_at_));
  const auto left =
      std::chrono::seconds(std::llround(per_step * static_cast<double>(recipe_.steps - m.step)));
  const std::int64_t saved = std::max(saver_->committed_step(), resumed_at_);
  std::string safe = saved < 0 ? "no checkpoint yet" : "checkpoint " + std::to_string(saved);
  if (unsaved_ > saved) safe += ", that of step " + std::to_string(unsaved_) + " failed";
  // How much of what the GPUs could do at most.
  std::array<char, 32> used{};
  if (peak_ > 0) {
    std::snprintf(
        used.data(), used.size(), "  MFU %.0f%%",
        100 * m.tokens_per_s * model::operations_per_token(shape_, recipe_.context) / (peak_ * ranks_));
  }
  std::array<char, 256> line{};
  std::snprintf(line.data(), line.size(),
                "step %lld/%lld  loss %.4f  %.0f tokens/s (%.0f a rank)%s  norm %.3f  lr %.2e  %s left  %s%s",
                static_cast<long long>(m.step), static_cast<long long>(recipe_.steps), m.loss, m.tokens_per_s,
                m.tokens_per_s / ranks_, used.data(), m.grad_norm, m.learning_rate,
                format_duration(left).c_str(), safe.c_str(),
                skipped_ == 0 ? "" : ("  " + std::to_string(skipped_) + " skipped").c_str());
  return line.data();
}

// To people, in the log and in `tutti show`.
void Trainer::tell(const std::string& line) const {
  say(line);
  if (rank_ == 0 && !options_.progress_file.empty()) std::ofstream(options_.progress_file) << line;
}

// A line that is missing costs less than a training that ends.
void Trainer::tell_missing_metrics() {
  if (const auto problem = metrics_->take_problem())
    say("warning: " + problem->text() + "; training goes on without these lines");
}

// A checkpoint should not be ahead of the lines of its steps, for they are not computed again.
bool Trainer::flush_metrics() {
  if (rank_ != 0) return true;
  const bool nothing_waits = metrics_->flush(metrics_patience);
  tell_missing_metrics();
  return nothing_waits;
}

void Trainer::report(const StepMetrics& metrics, bool force) {
  last_ = metrics;
  if (rank_ != 0) return;
  metrics_->append(metrics);
  tell_missing_metrics();
  if (!force && seconds_since(printed_) < print_every_s) return;
  printed_ = Clock::now();
  tell(progress(metrics));
  // Checkpoints lie in the run's folder: the agent, which looks at the job's, is shown that there is a new
  // one.
  if (const std::int64_t saved = saver_->committed_step();
      saved != told_step_ && !options_.saved_folder.empty()) {
    ::utimensat(AT_FDCWD, options_.saved_folder.c_str(), nullptr, 0);
    told_step_ = saved;
  }
}

// Who was replaced stops: what it would save is refused, and what it prints misleads.
void Trainer::check_owner() const {
  if (owner_ == nullptr) return;
  if (const auto lost = owner_->lost()) throw Failure(*lost);
}

// All ranks come here alike. The step is over and has changed nothing; the next one has other samples.
void Trainer::count_bad_step(double loss, double norm) {
  if (std::isfinite(loss) && std::isfinite(norm)) {
    bad_in_row_ = 0;
    return;
  }
  ++skipped_;
  say("step " + std::to_string(step_) +
      " is skipped: " + (std::isfinite(loss) ? "its gradients are" : "its loss is") + " not finite");
  if (++bad_in_row_ < recipe_.bad_steps_max) return;
  throw Failure(
      invalid("the gradients were not finite in " + std::to_string(bad_in_row_) +
              " steps in a row, up to step " + std::to_string(step_))
          .within("the run diverges")
          .remedy("a lower learning rate, a longer warm-up or a smaller clip keeps training stable; "
                  "bad_steps_max says how many are borne"));
}

Ending Trainer::run(const std::function<bool()>& stop) {
  auto ending = caught([&] { return take_steps(stop); });
  if (!ending) give_up(ending.error());
  return *ending;
}

Ending Trainer::take_steps(const std::function<bool()>& stop) {
  started_ = Clock::now();
  started_at_ = step_;
  bool stopped = false;
  while (step_ < recipe_.steps && !stopped) {
    check_owner();
    const auto begin = Clock::now();
    const Batch batch = batch_at(samples_seen_);
    const double sum = model_->run(batch.microbatches, 1.0 / rows_of_step());
    const Shared shared = share(sum, batch, stop());
    check_replay(shared.loss);
    if (saver_->waits_for_loss()) saver_->provide_loss(shared.loss);
    const double rate = recipe::learning_rate_at(recipe_, step_);
    const double norm = model_->parameters().update({.learning_rate = rate,
                                                     .beta1 = recipe_.beta1,
                                                     .beta2 = recipe_.beta2,
                                                     .decay = recipe_.weight_decay,
                                                     .clip = recipe_.clip,
                                                     .step = step_ + 1,
                                                     .take = std::isfinite(shared.loss)});
    ++step_;
    samples_seen_ += static_cast<std::uint64_t>(recipe_.batch);
    stopped = shared.stop;
    count_bad_step(shared.loss, norm);
    const double seconds = seconds_since(begin);
    report({.step = step_,
            .loss = shared.loss,
            .tokens = static_cast<std::int64_t>(samples_seen_) * recipe_.context,
            .tokens_per_s = rows_of_step() / seconds,
            .grad_norm = norm,
            .learning_rate = rate,
            .step_ms = seconds * 1e3,
            .data = shared.data,
            .skipped = skipped_},
           step_ == recipe_.steps || stopped);
    if (step_ % recipe_.checkpoint_every == 0 || step_ == recipe_.steps || stopped) save();
  }
  finish_saving(stop);
  return step_ < recipe_.steps ? Ending::stopped : Ending::finished;
}

}  // namespace

Result<Ending> train(const RunOptions& options, comm::Communicator world, const std::function<bool()>& stop) {
  // This line to the others outlives all that is built on it.
  comm::Communicator line = world;
  std::unique_ptr<Ownership> owner;
  auto ending = caught([&] {
    std::optional<recipe::Submission> submission;
    if (line.rank() == 0) {
      submission = read_submission(options);
      OwnershipOptions ownership = options.ownership;
      ownership.take_over = ownership.take_over || submission->take_over;
      ownership.over = passed_over_by(*submission);
      owner = require_disk(Ownership::take(options.folder, options.fence, line.node(0), ownership));
    }
    // Before anything of the run is changed.
    require_shared(line, options.folder, owner ? owner->token() : "", options.ownership.seen_within);
    RunPlan plan = agree(options, line, submission ? &*submission : nullptr);
    return Trainer(options, std::move(plan), std::move(world), owner.get()).run(stop);
  });
  // Before the line is closed: whoever waits for this rank hears why it does not come.
  if (!ending) {
    line.abort(ending.error().text());
    if (options.failing) options.failing(ending.error());
  } else if (options.leaving) {
    options.leaving(*ending);
  }
  return ending;
}

}  // namespace tutti::train
