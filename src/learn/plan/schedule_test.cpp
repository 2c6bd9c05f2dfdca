#include "learn/plan/schedule.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

namespace tutti::plan {
namespace {

// Runs all stages at once on paper: each does its next action as soon as what it needs has arrived.
struct Paper {
  Paper(int stages_, int parts_, int microbatches_)
      : stages(stages_), parts(parts_), microbatches(microbatches_) {
    for (int stage = 0; stage < stages; ++stage) todo.push_back(schedule(stages, parts, microbatches, stage));
    at.resize(static_cast<std::size_t>(stages));
  }

  using Done = std::tuple<Action::Kind, int, int>;  // kind, piece, microbatch

  bool ready(int stage, const Action& action) const {
    const int piece = action.part * stages + stage;
    if (action.kind == Action::Kind::forward) {
      return piece == 0 || done.contains({Action::Kind::forward, piece - 1, action.microbatch});
    }
    if (!done.contains({Action::Kind::forward, piece, action.microbatch})) return false;
    return piece == stages * parts - 1 ||
           done.contains({Action::Kind::backward, piece + 1, action.microbatch});
  }

  // With a limit: the oldest of the last sends is not received yet, and the next one waits for it.
  bool waits_for_a_send(int stage) const {
    if (sends_max == 0) return false;
    std::vector<Done> receptions;
    for (std::size_t i = 0; i < at[static_cast<std::size_t>(stage)]; ++i) {
      const Action& action = todo[static_cast<std::size_t>(stage)][i];
      const int piece = action.part * stages + stage;
      const int next = action.kind == Action::Kind::forward ? piece + 1 : piece - 1;
      if (next >= 0 && next < stages * parts) receptions.emplace_back(action.kind, next, action.microbatch);
    }
    const auto limit = static_cast<std::size_t>(sends_max);
    return receptions.size() >= limit && !done.contains(receptions[receptions.size() - limit]);
  }

  // True if something moved.
  bool round() {
    std::vector<Done> now;
    for (int stage = 0; stage < stages; ++stage) {
      auto& next = at[static_cast<std::size_t>(stage)];
      const auto& mine = todo[static_cast<std::size_t>(stage)];
      if (next == mine.size() || !ready(stage, mine[next]) || waits_for_a_send(stage)) continue;
      now.emplace_back(mine[next].kind, mine[next].part * stages + stage, mine[next].microbatch);
      ++next;
    }
    done.insert(now.begin(), now.end());
    return !now.empty();
  }

  int stages, parts, microbatches;
  int sends_max = 0;
  std::vector<std::vector<Action>> todo;
  std::vector<std::size_t> at;
  std::set<Done> done;
};

TEST(Schedule, EveryPipelineEnds) {
  for (int stages = 1; stages <= 8; ++stages) {
    for (int parts = 1; parts <= 4; ++parts) {
      for (int microbatches = 1; microbatches <= 16; ++microbatches) {
        if (parts > 1 && microbatches % stages != 0) continue;
        Paper paper(stages, parts, microbatches);
        while (paper.round()) {}
        EXPECT_EQ(paper.done.size(), static_cast<std::size_t>(2 * stages * parts * microbatches))
            << stages << " stages, " << parts << " parts, " << microbatches << " microbatches";
      }
    }
  }
}

TEST(Schedule, EveryPipelineEndsWithFewSendsUnderWay) {
  for (int stages = 2; stages <= 6; ++stages) {
    for (int parts = 1; parts <= 4; ++parts) {
      for (const int rounds : {1, 2, 3, 8}) {
        Paper paper(stages, parts, stages * rounds);
        paper.sends_max = sends_under_way_max(stages, parts);
        while (paper.round()) {}
        EXPECT_EQ(paper.done.size(), static_cast<std::size_t>(2 * stages * parts * stages * rounds))
            << stages << " stages, " << parts << " parts, " << rounds << " rounds";
      }
    }
  }
}

TEST(Schedule, AStageHoldsNoMoreMicrobatchesThanStagesFollow) {
  for (int stage = 0; stage < 4; ++stage) {
    int held = 0;
    int most = 0;
    for (const Action& action : schedule(4, 1, 16, stage)) {
      held += action.kind == Action::Kind::forward ? 1 : -1;
      most = std::max(most, held);
    }
    EXPECT_EQ(most, 4 - stage);
  }
}

TEST(Schedule, MicrobatchesEndInOrder) {
  for (const int parts : {1, 2}) {
    std::map<int, int> last;
    for (const Action& action : schedule(2, parts, 4, 0)) {
      if (action.kind == Action::Kind::backward) {
        EXPECT_EQ(action.microbatch, last[action.part]++);
      }
    }
  }
}

TEST(Schedule, EveryMessageHasAReceiverThatNeedsIt) {
  const int stages = 4;
  const int parts = 2;
  std::set<std::tuple<int, int, int, int>> sent;
  for (int stage = 0; stage < stages; ++stage) {
    for (const Message& message : messages_from(stages, parts, 8, stage)) {
      EXPECT_EQ(message.from, stage);
      const int step = message.kind == Action::Kind::forward ? 1 : stages - 1;
      EXPECT_EQ(message.to, (stage + step) % stages);
      EXPECT_TRUE(
          sent.insert({static_cast<int>(message.kind), message.to, message.part, message.microbatch}).second);
    }
  }
  EXPECT_EQ(sent.size(), static_cast<std::size_t>(2 * 8 * (stages * parts - 1)));
}

TEST(Schedule, OneStageSendsNothing) { EXPECT_TRUE(messages_from(1, 1, 4, 0).empty()); }

}  // namespace
}  // namespace tutti::plan
