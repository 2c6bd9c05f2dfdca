#include "serve/parallel/parallel.hpp"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <optional>

#include "serve/parallel/peers.hpp"
#include "serve/program/within_memory.hpp"

namespace tutti::serve::parallel {
namespace {

using remote::Ready;
using remote::Word;
using remote::Worker;

// How long the first answer may take, the others after it, and what is left after the first failure.
struct Patience {
  Duration first;
  Duration others;
  Duration after_failure;
};
// What one rank could not load the others wait for in vain.
Patience while_loading(const remote::Deadlines& deadlines) {
  return {deadlines.loading, deadlines.loading, 0s};
}
// Who has answered has what the others computed; a failure ends the steps of all.
Patience in_a_step(const remote::Deadlines& deadlines) { return {deadlines.step, step_deadline, 3s}; }

int milliseconds(Duration time) {
  return static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(time).count());
}

bool agree(const Limits& a, const Limits& b) {
  return a.vocabulary == b.vocabulary && a.context == b.context && a.block_tokens == b.block_tokens &&
         a.blocks == b.blocks && a.step_tokens_max == b.step_tokens_max && a.step_rows_max == b.step_rows_max;
}

class ParallelModel final : public Model {
 public:
  ParallelModel(std::vector<std::unique_ptr<Worker>> ranks, const remote::Deadlines& deadlines)
      : ranks_(std::move(ranks)), deadlines_(deadlines), waits_(ranks_.size()) {}
  ~ParallelModel() override { end_all(); }

  Result<> wait_until_ready() {
    auto answers = collect(Word::ready, Word::ready, while_loading(deadlines_));
    if (!answers) return std::move(answers).error();
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      auto ready = remote::decode_ready((*answers)[rank]);
      if (!ready) return std::move(ready).error();
      if (rank > 0 && ready->fingerprint != ready_.fingerprint)
        return failed("the ranks have read different weights: the files were changed meanwhile")
            .remedy("start it again when nobody writes into them");
      if (rank > 0 && !agree(ready->limits, ready_.limits))
        return failed("the ranks have come to different sizes");
      if (rank == 0) ready_ = std::move(*ready);
    }
    return {};
  }

  const Limits& limits() const override { return ready_.limits; }

  Result<> step(std::span<const Chunk> chunks) override {
    const std::string bytes = remote::encode(chunks);
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (auto sent = send(rank, Word::step, bytes); !sent) return sent;
    }
    return {};
  }

  Result<std::vector<Chosen>> choose(std::span<const Choice> choices) override {
    auto bytes = ask_first(Word::choose, remote::encode(choices), Word::chosen);
    if (!bytes) return std::move(bytes).error();
    return remote::read_chosen(*bytes, choices.size(), ready_.limits);
  }

  Result<std::vector<float>> logits(std::int32_t row) override {
    auto bytes = ask_first(Word::row, remote::encode(row), Word::logits);
    if (!bytes) return std::move(bytes).error();
    return remote::decode_logits(*bytes);
  }

  // Once a rank is missed, and by its name: also while nobody asks.
  bool is_lost() override {
    for (std::size_t rank = 0; rank < ranks_.size() && !problem_; ++rank) {
      if (!ranks_[rank]->is_open()) static_cast<void>(give_up(ranks_[rank]->gone()));
    }
    return problem_.has_value();
  }
  std::string why_lost() const override { return problem_ ? problem_->text() : Model::why_lost(); }
  void abandon() override {
    for (const auto& rank : ranks_) rank->kill();
  }

  std::string describe() const override {
    return std::to_string(ranks_.size()) + " ranks, each " + ready_.about;
  }
  std::string fingerprint() const override { return ready_.fingerprint; }

 private:
  Result<> send(std::size_t rank, Word word, const std::string& bytes) {
    if (problem_) return *problem_;
    auto sent = ranks_[rank]->send(word, bytes);
    if (!sent) return give_up(std::move(sent).error());
    return {};
  }

  // Only the first has the logits; the others are asked to choose nothing, and so whether they could compute.
  Result<std::string> ask_first(Word word, const std::string& bytes, Word wanted) {
    auto sent = send(0, word, bytes);
    const std::string nothing = remote::encode(std::span<const Choice>());
    for (std::size_t rank = 1; rank < ranks_.size() && sent; ++rank) sent = send(rank, Word::choose, nothing);
    if (!sent) return std::move(sent).error();
    auto answers = collect(wanted, Word::chosen, in_a_step(deadlines_));
    if (!answers) return std::move(answers).error();
    return std::move(answers->front());
  }

  // An answer of each rank, whoever is first. A failure is told when all have answered; a rank that has gone,
  // that has lost the others, or that does not answer though the others have, ends them all. One for whose
  // answer there is no memory has answered: none is left behind for the next step.
  Result<std::vector<std::string>> collect(Word of_first, Word of_others, const Patience& patience) {
    if (problem_) return *problem_;
    std::vector<std::string> answers = patiently([&] { return std::vector<std::string>(ranks_.size()); });
    auto& waits = waits_;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
      waits[rank] = {ranks_[rank]->descriptor(), POLLIN, 0};
    std::optional<Error> failure;
    bool is_final = false;
    for (std::size_t left = ranks_.size(); left > 0;) {
      const Duration time = left == ranks_.size() ? patience.first : patience.others;
      const int ready =
          ::poll(waits.data(), waits.size(), milliseconds(failure ? patience.after_failure : time));
      if (ready < 0 && errno == EINTR) continue;
      if (ready < 0) return give_up(failed_errno("waiting for the ranks of the model", errno));
      if (ready == 0) return give_up(failure ? *failure : silent(waits));
      for (std::size_t rank = 0; rank < waits.size(); ++rank) {
        if (waits[rank].revents == 0) continue;
        waits[rank] = {-1, 0, 0};
        --left;
        auto answer = within_memory([&] { return ranks_[rank]->answer(rank == 0 ? of_first : of_others); });
        if (answer) {
          answers[rank] = std::move(*answer);
          continue;
        }
        // The others do nothing that could fail but compute with each other.
        is_final = is_final ||
                   (rank > 0 && answer.error().code() != ErrorCode::invalid && answer.error() != no_memory());
        if (!failure) failure = std::move(answer).error();
        if (!ranks_[rank]->is_there()) return give_up(*failure);
      }
    }
    if (failure) return is_final ? give_up(*failure) : *failure;
    return answers;
  }

  static Error silent(const std::vector<pollfd>& waits) {
    std::size_t rank = 0;
    while (waits[rank].fd < 0) ++rank;
    const bool is_one =
        std::any_of(waits.begin(), waits.end(), [](const pollfd& each) { return each.fd < 0; });
    return failed(is_one ? "rank " + std::to_string(rank) + " of the model does not answer"
                         : "no rank of the model answers")
        .remedy("start the engine again");
  }

  // What one rank has lost the others cannot make up for.
  Error give_up(Error error) {
    end_all();
    problem_ = error;
    return error;
  }

  void end_all() {
    // All at once, and then each is waited for: a process with a GPU may take a while.
    abandon();
    for (const auto& rank : ranks_) rank->end();
  }

  std::vector<std::unique_ptr<Worker>> ranks_;
  const remote::Deadlines deadlines_;
  Ready ready_;
  std::vector<pollfd> waits_;     // of each rank whose answer is waited for
  std::optional<Error> problem_;  // once there is one, it stays
};

}  // namespace

Result<std::unique_ptr<Model>> open_ranks(const std::vector<Worker::Program>& programs) {
  std::vector<std::unique_ptr<Worker>> ranks;
  for (const Worker::Program& program : programs) {
    auto rank = Worker::start(program);
    if (!rank) return std::move(rank).error();
    ranks.push_back(std::move(*rank));
  }
  auto model = std::make_unique<ParallelModel>(std::move(ranks), programs.front().deadlines);
  if (auto ready = model->wait_until_ready(); !ready) return std::move(ready).error();
  return std::unique_ptr<Model>(std::move(model));
}

}  // namespace tutti::serve::parallel
