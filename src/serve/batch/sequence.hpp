// What a batch knows of a request and of each of its answers. For the sources of this folder only.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "serve/batch/batch.hpp"

namespace tutti::serve {

struct Batch::Sequence {
  SequenceId id;
  const Request* request = nullptr;
  State state = State::held;
  bool is_told = false;            // that it has ended, and how
  bool in_prompt = false;          // it runs, and its tokens are not all planned yet
  std::int64_t planned_step = -1;  // the last one that it had a part in
  std::int64_t refused_step = -1;  // the first in which there was no room for it; -1: there was
  std::vector<Token> tokens;       // the prompt and what was generated; empty while it is held
  std::int64_t generated = 0;      // of them; while it is resumed, those that were read again
  std::int64_t computed = 0;       // positions whose keys and values are in the blocks
  std::vector<BlockId> blocks;
  std::size_t kept_blocks = 0;      // the first ones, that others may find
  std::int64_t cached_tokens = -1;  // found when it was let in for the first time
  std::vector<Choice::Seen> seen;   // by token; empty if nothing is penalized
  Guide::State guide_state = 0;
  // Of the prompt, as far as it is computed:
  std::vector<double> hidden_sum;
  std::vector<Chosen> prompt_choices;
  AnswerText text;
  Drafter drafter;

  Sequence(const Request& from, std::shared_ptr<const StopTexts> stops)
      : request(&from), text(std::move(stops)) {}
  // Until its first token: something of each token of the prompt is wanted, so that all of them are computed,
  // and none is found.
  bool reads_prompt() const {
    return generated == 0 && id.answer == 0 &&
           (request->prompt_logprobs || request->pooling == Pooling::mean);
  }
  // Its last token is always computed: its logits are wanted.
  std::span<const Token> before_last() const { return std::span(tokens).first(tokens.size() - 1); }
  std::int64_t size() const { return static_cast<std::int64_t>(tokens.size()); }
};

struct Batch::Entry {
  RequestId id;
  Request request;
  std::vector<std::unique_ptr<Sequence>> sequences;
  std::int32_t finished = 0;
  bool is_lost = false;  // all that was not told of it is being told so
};

}  // namespace tutti::serve
