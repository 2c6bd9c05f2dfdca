// A rank's share of a transformer: the parts of the model that its stage of the pipeline computes, with their
// parameters. One thread.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "learn/plan/mesh.hpp"
#include "learn/plan/schedule.hpp"
#include "learn/train/block.hpp"

namespace tutti::train {

// A microbatch: rows of tokens, and for each the token that follows.
struct Microbatch {
  at::Tensor tokens;
  at::Tensor targets;
};

// Tokens to the stream.
class Embedding {
 public:
  Embedding(const Setup& setup, Groups& groups, Storage& tokens, Storage* positions);
  at::Tensor forward(const at::Tensor& tokens);
  void backward(const at::Tensor& tokens, const at::Tensor& dx, bool last);

 private:
  std::int64_t first_row() const;

  const Setup& setup_;
  Groups& groups_;
  Storage& tokens_;
  Storage* positions_;
  View table_;
  View position_table_;
  math::Slice slice_;
};

// The stream to the loss. The logits of a few rows are there at a time, and turn into their own gradient.
class Head {
 public:
  Head(const Setup& setup, Groups& groups, Storage& norm, Storage& vocabulary, const std::string& matrix);

  struct Outcome {
    at::Tensor loss;  // the sum over the microbatch, one f64
    at::Tensor dx;    // of factor · loss; nothing without gradients
  };
  Outcome forward(const Stream& stream, const at::Tensor& targets, double factor, bool with_gradients);
  // Of the last row of each sequence: batch × this slice's vocabulary.
  at::Tensor logits(const Stream& stream, std::int64_t position);
  Storage& norm_storage() { return norm_; }

 private:
  at::Tensor loss_of(at::Tensor& logits, const at::Tensor& targets, double factor, bool with_gradients);

  const Setup& setup_;
  Groups& groups_;
  Storage& norm_;
  Storage& vocabulary_;
  View norm_weight_;
  View norm_bias_;
  View matrix_;
  math::Slice slice_;
  bool has_bias_;
};

struct TransformerOptions {
  Setup setup;
  Keeping keeping;
  int parts = 1;  // of a stage: more than one is interleaved
};

class Transformer {
 public:
  Transformer(TransformerOptions options, Groups& groups);

  // One pass over the microbatches, forward and backward; the sum of their losses, on the stage that has it
  // (0 on the others). `factor` is what each row counts. The gradients are under way when it returns.
  double run(const std::vector<Microbatch>& microbatches, double factor);
  // Forward alone.
  double evaluate(const std::vector<Microbatch>& microbatches);
  // Without a pipeline: the logits that follow the token at this position, batch × vocabulary.
  at::Tensor next_logits(const at::Tensor& tokens, std::int64_t position);

  Parameters& parameters() { return parameters_; }
  // The most sends that were under way at a time: each keeps its tensor.
  std::size_t sends_most() const { return sends_most_; }

 private:
  struct Part {
    std::optional<Embedding> embedding;
    std::vector<Block> blocks;
    std::optional<Head> head;
  };
  struct Tape {
    std::vector<Block::Tape> blocks;
    at::Tensor dx;  // what the head has computed already
  };
  // Messages from one stage, received in the order in which they are sent.
  struct Inbox {
    std::vector<plan::Message> expected;
    std::size_t posted = 0;
    std::map<std::tuple<int, int, int>, std::pair<Pending, at::Tensor>> received;
  };

  void build_part(const plan::Span& span, const std::vector<model::Unit>& units);
  at::Tensor forward(Part& part, const Microbatch& microbatch, const at::Tensor& x, Tape* tape,
                     double factor);
  at::Tensor backward(Part& part, const Microbatch& microbatch, Tape& tape, at::Tensor dy, bool last);
  enum class Pass { forward, both };
  double run_schedule(const std::vector<Microbatch>& microbatches, double factor, Pass pass);
  at::Tensor receive(const plan::Message& message);
  void send(const plan::Message& message, const at::Tensor& data);
  void act(const plan::Action& action, const std::vector<Microbatch>& microbatches, double factor, Pass pass);

  TransformerOptions options_;
  Groups& groups_;
  Parameters parameters_;
  std::vector<Part> parts_;
  Storage* tied_ = nullptr;
  std::map<int, Inbox> inboxes_;
  std::map<std::pair<int, int>, Tape> tapes_;
  std::deque<Pending> sends_;  // oldest first
  std::size_t sends_most_ = 0;
  at::Tensor loss_;
};

}  // namespace tutti::train
