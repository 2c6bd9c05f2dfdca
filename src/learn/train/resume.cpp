#include "learn/train/resume.hpp"

#include <algorithm>
#include <cstdio>

#include "base/json/parse.hpp"
#include "base/json/write.hpp"
#include "learn/checkpoint/folder.hpp"
#include "learn/checkpoint/read.hpp"
#include "learn/train/failure.hpp"
#include "learn/train/meeting.hpp"
#include "learn/train/saver.hpp"

namespace tutti::train {
namespace {

constexpr std::size_t problem_bytes_max = 1024;  // of what people are told

Error has_none_left(const std::string& folder, std::int64_t step) {
  return invalid("the run had a checkpoint of step " + std::to_string(step) +
                 ", and has none now that is whole")
      .within(folder)
      .remedy("put it back, or `tutti train --from-scratch` begins anew and keeps what is there");
}

// What a rank wanted of a source.
struct Wanted {
  Kind kind = Kind::weight;
  std::string tensor;
  checkpoint::Box box;
};

// What a rank met, as it tells the others.
struct Problem {
  std::string text;
  bool damaged = false;
  Wanted wanted;
};

std::string encode(const Problem& problem) {
  return json::write(json::Object{{"text", problem.text.substr(0, problem_bytes_max)},
                                  {"damaged", problem.damaged},
                                  {"kind", static_cast<int>(problem.wanted.kind)},
                                  {"tensor", problem.wanted.tensor},
                                  {"offset", json::array_of(problem.wanted.box.offset)},
                                  {"extent", json::array_of(problem.wanted.box.extent)}});
}

std::vector<std::int64_t> sizes_in(const json::Value& list) {
  std::vector<std::int64_t> sizes;
  for (const json::Value& size : *list.list()) sizes.push_back(size.whole().value());
  return sizes;
}

// Of a rank of the same program.
Problem decode_problem(const std::string& text) {
  json::Value told = require(json::parse(text));
  return {.text = *told["text"].text(),
          .damaged = told["damaged"].boolean().value(),
          .wanted = {.kind = static_cast<Kind>(told["kind"].whole().value()),
                     .tensor = *told["tensor"].text(),
                     .box = {sizes_in(told["offset"]), sizes_in(told["extent"])}}};
}

std::string named(const comm::Communicator& world, int rank) {
  return "rank " + std::to_string(rank) + " on node " + world.node(rank);
}

// Who reads once more what a rank has read wrong: one with another memory and another network, where there is
// one.
int witness_of(const comm::Communicator& world, int rank) {
  for (int other = 0; other < world.size(); ++other) {
    if (world.node(other) != world.node(rank)) return other;
  }
  return 0;
}

// "" if a witness finds the same damage as this rank; else what it finds, on all ranks alike.
std::string contradiction(comm::Communicator& world, int rank, const Wanted& wanted,
                          const Parameters::Source& source) {
  const int witness = witness_of(world, rank);
  std::string mine;
  if (world.rank() == witness) {
    model::Tensor tensor;
    tensor.name = wanted.tensor;
    std::vector<float> values(static_cast<std::size_t>(wanted.box.elements()));
    const auto read = caught([&] { source(wanted.kind, tensor, wanted.box, values); });
    if (read) mine = named(world, witness) + " reads it as it was written: it is not the disk";
    if (!read && read.error().code() != ErrorCode::damaged)
      mine = named(world, witness) + " cannot tell: " + read.error().text();
  }
  return require(tell_all(world, mine)).at(static_cast<std::size_t>(witness));
}

class Loading {
 public:
  Loading(const ResumeOptions& options, comm::Communicator& world, Parameters& parameters,
          const std::function<void(const std::string&)>& say)
      : options_(options), world_(world), parameters_(parameters), say_(say) {}

  std::optional<checkpoint::State> run() {
    while (const auto step = choose()) {
      auto mine = checkpoint::Checkpoint::open(options_.checkpoints, *step);
      if (mine && world_.rank() == 0) check_model(mine->state());
      const Parameters::Source source = [&](Kind kind, const model::Tensor& tensor,
                                            const checkpoint::Box& box, std::span<float> out) {
        if (!mine) throw Failure(mine.error());
        require(mine->read(stored_name(kind, tensor.name), box, std::as_writable_bytes(out)));
      };
      const Filled filled = fill_everywhere(world_, parameters_, source, true);
      if (filled.problem.empty()) {
        const checkpoint::Checkpoint whole = require(std::move(mine));
        say_("resumed at step " + std::to_string(*step) + " from " + whole.path());
        return whole.state();
      }
      if (!filled.damaged) {
        throw Failure(failed(filled.problem)
                          .within("checkpoint of step " + std::to_string(*step))
                          .remedy("it stays as it is; the run goes on from it when it can be read"));
      }
      if (world_.rank() == 0) set_aside(*step, filled.problem);
    }
    return std::nullopt;
  }

 private:
  // Rank 0 looks, so that all ranks take the same one.
  std::optional<std::int64_t> choose() {
    constexpr std::int64_t none = -1;
    std::int64_t step = world_.rank() == 0 ? newest().value_or(none) : none;
    require(world_.broadcast(&step, 1, comm::DataType::i64, 0, meeting_deadline).wait());
    return step == none ? std::nullopt : std::optional(step);
  }

  std::optional<std::int64_t> newest() const {
    const auto steps = require(checkpoint::steps_in(options_.checkpoints));
    if (!steps.empty()) return steps.back();
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
  comm::Communicator& world_;
  Parameters& parameters_;
  const std::function<void(const std::string&)>& say_;
};

}  // namespace

Filled fill_everywhere(comm::Communicator& world, Parameters& parameters, const Parameters::Source& source,
                       bool with_moments) {
  Wanted wanted;
  const Parameters::Source noting = [&](Kind kind, const model::Tensor& tensor, const checkpoint::Box& box,
                                        std::span<float> out) {
    wanted = {kind, tensor.name, box};
    source(kind, tensor, box, out);
  };
  const auto done = caught([&] { parameters.fill(noting, with_moments); });
  std::string mine;
  if (!done) mine = encode({done.error().text(), done.error().code() == ErrorCode::damaged, wanted});
  const auto all = require(tell_all(world, mine));
  Filled filled{.problem = "", .damaged = true};
  std::optional<std::pair<int, Problem>> first;
  for (int rank = 0; rank < world.size(); ++rank) {
    const std::string& told = all[static_cast<std::size_t>(rank)];
    if (told.empty()) continue;
    Problem problem = decode_problem(told);
    // A gang of thousands has one disk, and says one thing.
    if (filled.problem.size() < problem_bytes_max)
      filled.problem += (filled.problem.empty() ? "" : "; ") + named(world, rank) + ": " + problem.text;
    filled.damaged = filled.damaged && problem.damaged;
    if (!first) first.emplace(rank, std::move(problem));
  }
  if (!first || !filled.damaged) return filled;
  const auto& [rank, problem] = *first;
  const std::string other = contradiction(world, rank, problem.wanted, source);
  if (other.empty()) return filled;
  return {.problem = named(world, rank) + ": " + problem.text + "; " + other, .damaged = false};
}

std::optional<checkpoint::State> resume(const ResumeOptions& options, comm::Communicator& world,
                                        Parameters& parameters,
                                        const std::function<void(const std::string&)>& say) {
  return Loading(options, world, parameters, say).run();
}

}  // namespace tutti::train
