#include "learn/plan/schedule.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace tutti::plan {
namespace {

// The work of a stage in one direction is numbered: microbatches in rounds of as many as there are stages,
// each round through all parts. Backward goes through the parts from the last one.
Action numbered(Action::Kind kind, int number, int stages, int parts) {
  if (parts == 1) return {kind, 0, number};
  const int round = number / (stages * parts);
  const int inside = number % (stages * parts);
  const int part = inside / stages;
  return {kind, kind == Action::Kind::forward ? part : parts - 1 - part, round * stages + inside % stages};
}

// What follows from an action: its result goes to the next part of the pipeline, if there is one.
bool message_of(const Action& action, int stages, int parts, int stage, Message& message) {
  const int piece = action.part * stages + stage;
  const int next = action.kind == Action::Kind::forward ? piece + 1 : piece - 1;
  if (next < 0 || next >= stages * parts) return false;
  message = {action.kind, stage, next % stages, next / stages, action.microbatch};
  return true;
}

}  // namespace

std::vector<Action> schedule(int stages, int parts, int microbatches, int stage) {
  TUTTI_CHECK(stages > 0 && parts > 0 && microbatches > 0 && stage >= 0 && stage < stages);
  TUTTI_CHECK(parts == 1 || microbatches % stages == 0, "interleaving needs whole rounds");
  const int all = microbatches * parts;
  const int ahead = parts == 1 ? stages - stage - 1 : (stages - stage - 1) * 2 + (parts - 1) * stages;
  const int warm_up = std::min(all, ahead);
  std::vector<Action> actions;
  actions.reserve(2 * static_cast<std::size_t>(all));
  for (int number = 0; number < warm_up; ++number) {
    actions.push_back(numbered(Action::Kind::forward, number, stages, parts));
  }
  for (int number = warm_up; number < all; ++number) {
    actions.push_back(numbered(Action::Kind::forward, number, stages, parts));
    actions.push_back(numbered(Action::Kind::backward, number - warm_up, stages, parts));
  }
  for (int number = all - warm_up; number < all; ++number) {
    actions.push_back(numbered(Action::Kind::backward, number, stages, parts));
  }
  return actions;
}

int sends_under_way_max(int stages, int parts) {
  // Between a forward pass and its backward pass a stage is ahead by at most so many of each kind.
  return parts == 1 ? 2 * stages + 2 : 2 * stages * (parts + 1) + 2;
}

std::vector<Message> messages_from(int stages, int parts, int microbatches, int stage) {
  std::vector<Message> messages;
  for (const Action& action : schedule(stages, parts, microbatches, stage)) {
    Message message;
    // With one stage the next part is here as well, and nothing travels.
    if (stages > 1 && message_of(action, stages, parts, stage, message)) messages.push_back(message);
  }
  return messages;
}

}  // namespace tutti::plan
