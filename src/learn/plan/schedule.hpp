// What a stage of a pipeline does, in which order: one forward, one backward (1F1B), so that a stage holds
// the activations of few microbatches; interleaved when a stage has several parts, so that it waits less.
// Pure.
#pragma once

#include <vector>

namespace tutti::plan {

struct Action {
  enum class Kind { forward, backward };
  Kind kind = Kind::forward;
  int part = 0;
  int microbatch = 0;

  friend bool operator==(const Action&, const Action&) = default;
};

// With several parts the microbatches must be a multiple of the stages.
std::vector<Action> schedule(int stages, int parts, int microbatches, int stage);

// A stage that has begun so many sends and waits for the oldest of them waits for no rank that waits for it:
// what it sent has been asked for by then. It bounds what a stage holds, whatever the number of microbatches.
int sends_under_way_max(int stages, int parts);

// A message between stages: the activations of a forward pass, or the gradients of a backward pass, for that
// part of the receiver.
struct Message {
  Action::Kind kind = Action::Kind::forward;
  int from = 0;
  int to = 0;
  int part = 0;
  int microbatch = 0;

  friend bool operator==(const Message&, const Message&) = default;
};

// What a stage sends, in the order in which it does.
std::vector<Message> messages_from(int stages, int parts, int microbatches, int stage);

}  // namespace tutti::plan
