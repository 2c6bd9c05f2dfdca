// How the tokens of a step are chosen: where its logits are, copied to a place that the next step does not
// write to; what the reference alone does is done at once, on the host. One thread at a time. Needs CUDA.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "serve/batch/choose.hpp"
#include "serve/cuda/resident.hpp"
#include "serve/cuda/steps.hpp"

namespace tutti::serve::cuda {

class Choosing {
 public:
  // Both outlive it.
  static Result<std::unique_ptr<Choosing>> make(const Resident& resident, Steps& steps);

  // Of the last step; at most answer_slots questions are under way.
  Result<> ask(std::span<const Choice> choices);
  bool has_answer() const;
  // To the oldest question.
  Result<std::vector<Chosen>> answer();
  // Where the tokens of the last question are, for a step that follows it.
  std::span<const std::int32_t> places() const { return places_; }

  // Waits for the last step.
  Result<std::vector<float>> logits(std::int32_t row) const;

 private:
  struct Asked {
    std::size_t slot = 0;
    std::vector<std::int32_t> places;  // where the token of each choice is
    std::optional<std::vector<Chosen>> known;
  };
  using Events = std::array<OwnEvent, answer_slots>;

  Choosing(const Resident& resident, Steps& steps, Events done);
  Result<> check_row(std::int32_t row) const;
  Result<std::int32_t> place(std::span<const Choice> choices, Asked& asked) const;
  Result<> fetch(const Asked& asked, std::int32_t sampled) const;
  Result<std::vector<Chosen>> tokens_known(const Asked& asked) const;
  Result<std::vector<Chosen>> choose_here(std::span<const Choice> choices, const Asked& asked);
  std::size_t known_stride() const;
  Result<> ask_for_known(std::span<const Choice> choices, std::vector<double>& known) const;
  void take_known(std::span<const Choice> choices, const std::vector<double>& known,
                  std::vector<Chosen>& chosen) const;
  std::int32_t* tokens_of(std::size_t slot) const;

  const Resident& resident_;
  Steps& steps_;
  Events done_;  // the tokens of each slot are there
  Chooser chooser_;
  std::size_t asks_ = 0;
  std::deque<Asked> asked_;  // and not answered
  std::vector<std::int32_t> places_;
};

}  // namespace tutti::serve::cuda
