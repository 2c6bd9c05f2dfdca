#include "learn/train/resume.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "learn/checkpoint/folder.hpp"
#include "learn/checkpoint/read.hpp"
#include "learn/train/failure.hpp"
#include "learn/train/saver.hpp"

namespace tutti::train {
namespace {

constexpr std::int64_t problem_bytes_max = 1024;  // of what a rank tells the others

// Every rank's text, on every rank.
std::vector<std::string> tell_all(Group& world, const std::string& mine) {
  at::Tensor told = at::zeros({problem_bytes_max}, at::kByte);
  const auto length = std::min(mine.size(), static_cast<std::size_t>(problem_bytes_max - 1));
  std::memcpy(told.data_ptr(), mine.data(), length);
  at::Tensor all = at::zeros({problem_bytes_max * world.size()}, at::kByte);
  world.begin_all_gather(told, all).wait();
  std::vector<std::string> texts;
  for (int rank = 0; rank < world.size(); ++rank) {
    texts.emplace_back(static_cast<const char*>(all.data_ptr()) + rank * problem_bytes_max);
  }
  return texts;
}

Error has_none_left(const std::string& folder, std::int64_t step) {
  return invalid("the run had a checkpoint of step " + std::to_string(step) +
                 ", and has none now that is whole")
      .within(folder)
      .remedy("put it back, or `tutti train --from-scratch` begins anew and keeps what is there");
}

class Loading {
 public:
  Loading(const ResumeOptions& options, Groups& groups, Parameters& parameters,
          const std::function<void(const std::string&)>& say)
      : options_(options), groups_(groups), parameters_(parameters), say_(say) {}

  std::optional<checkpoint::State> run() {
    while (const auto step = choose()) {
      auto mine = checkpoint::Checkpoint::open(options_.checkpoints, *step);
      const Parameters::Source source = [&](Kind kind, const model::Tensor& tensor,
                                            const checkpoint::Box& box, std::span<float> out) {
        if (!mine) throw Failure(mine.error());
        require(mine->read(stored_name(kind, tensor.name), box, std::as_writable_bytes(out)));
      };
      const Filled filled = fill_everywhere(groups_, parameters_, source, true);
      if (filled.problem.empty()) {
        say_("resumed at step " + std::to_string(*step) + " from " + mine->path());
        return mine->state();
      }
      if (!filled.damaged) {
        throw Failure(failed(filled.problem)
                          .within("checkpoint of step " + std::to_string(*step))
                          .remedy("it stays as it is; the run goes on from it when it can be read"));
      }
      if (options_.rank == 0) set_aside(*step, filled.problem);
    }
    return std::nullopt;
  }

 private:
  // Rank 0 looks, so that all ranks take the same one.
  std::optional<std::int64_t> choose() {
    const auto found = options_.rank == 0 ? newest() : std::nullopt;
    at::Tensor choice = at::full({1}, found ? static_cast<double>(*found) + 1 : 0.0, at::kDouble);
    groups_.world.all_reduce(choice);
    if (choice.item<double>() == 0) return std::nullopt;
    return static_cast<std::int64_t>(choice.item<double>()) - 1;
  }

  std::optional<std::int64_t> newest() {
    const auto steps = require(checkpoint::steps_in(options_.checkpoints));
    for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
      const auto opened = checkpoint::Checkpoint::open(options_.checkpoints, *step);
      if (opened) {
        check_model(opened->state());
        return *step;
      }
      if (opened.error().code() != ErrorCode::damaged) throw Failure(opened.error());
      set_aside(*step, opened.error().text());
    }
    const auto had = require(checkpoint::had_step(options_.checkpoints));
    if (had) throw Failure(has_none_left(options_.checkpoints, *had));
    return std::nullopt;
  }

  void check_model(const checkpoint::State& state) const {
    const auto then = model::parse_config(state.model_config);
    if (!then) return;  // from a time when it was not written: the tensors' shapes tell
    const std::string other = model::difference(*then, options_.shape);
    if (other.empty()) return;
    throw Failure(invalid("it is of another model than the recipe's: " + other)
                      .within("checkpoint of step " + std::to_string(state.step))
                      .remedy("--set run=ANOTHER begins another run; --from-scratch begins this one anew"));
  }

  void set_aside(std::int64_t step, const std::string& why) {
    std::fprintf(stderr, "checkpoint of step %lld is refused: %s\n", static_cast<long long>(step),
                 why.c_str());
    const std::string aside = require(checkpoint::set_aside(options_.checkpoints, step, why));
    say_("checkpoint of step " + std::to_string(step) + " is damaged and now " + aside +
         "; the one before it is tried");
  }

  const ResumeOptions& options_;
  Groups& groups_;
  Parameters& parameters_;
  const std::function<void(const std::string&)>& say_;
};

}  // namespace

Filled fill_everywhere(Groups& groups, Parameters& parameters, const Parameters::Source& source,
                       bool with_moments) {
  constexpr char damage = 'd';
  constexpr char other = 'o';
  const auto done = caught([&] { parameters.fill(source, with_moments); });
  std::string mine;
  if (!done) mine = (done.error().code() == ErrorCode::damaged ? damage : other) + done.error().text();
  const auto all = tell_all(groups.world, mine);
  Filled filled{.problem = "", .damaged = true};
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].empty()) continue;
    // A gang of thousands has one disk, and says one thing.
    if (filled.problem.size() < static_cast<std::size_t>(problem_bytes_max)) {
      filled.problem +=
          (filled.problem.empty() ? "rank " : "; rank ") + std::to_string(rank) + ": " + all[rank].substr(1);
    }
    filled.damaged = filled.damaged && all[rank].front() == damage;
  }
  return filled;
}

std::optional<checkpoint::State> resume(const ResumeOptions& options, Groups& groups, Parameters& parameters,
                                        const std::function<void(const std::string&)>& say) {
  return Loading(options, groups, parameters, say).run();
}

}  // namespace tutti::train
