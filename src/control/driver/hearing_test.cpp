#include "control/driver/hearing.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace tutti::driver {
namespace {

constexpr Duration every = 200ms;

// Agents that have all been heard at the beginning; what comes of them is read, or waits.
class HearingTest : public testing::Test {
 protected:
  struct Agent {
    std::string node;
    Instant heard_at;
    std::uint64_t reads = 0;
    bool has_unread = false;
  };

  void add(std::size_t count) {
    for (std::size_t at = 0; at < count; ++at)
      agents_.push_back({.node = "n" + std::to_string(agents_.size()), .heard_at = now_});
  }
  Hearing::Verdict judge() {
    std::vector<Hearing::Line> lines;
    for (std::size_t at = 0; at < agents_.size(); ++at) {
      const Agent& agent = agents_[at];
      lines.push_back({.connection = at + 1,
                       .heard_at = agent.heard_at,
                       .reads = agent.reads,
                       .node = agent.node,
                       .has_unread = [this, &agent] {
                         ++asked_;
                         return agent.has_unread;
                       }});
    }
    return hearing_.judge(lines, now_);
  }
  // In time, as long as that; what the last round said.
  Hearing::Verdict go_on(Duration time) {
    Hearing::Verdict last;
    for (const Instant end = now_ + time; now_ < end;) {
      now_ += every;
      last = judge();
    }
    return last;
  }

  Instant now_{1000s};
  std::vector<Agent> agents_;
  Hearing hearing_;
  int asked_ = 0;
};

TEST_F(HearingTest, WhoIsSilentIsNotExcused) {
  add(4);
  judge();
  const auto verdict = go_on(10s);
  EXPECT_TRUE(verdict.awake);
  EXPECT_TRUE(verdict.excused.empty());
}

TEST_F(HearingTest, WhoWasHeardLatelyIsNotAskedFor) {
  add(4);
  agents_[0].has_unread = true;
  judge();
  go_on(agent_pause_max - every);
  EXPECT_EQ(asked_, 0);
  go_on(every);
  EXPECT_EQ(asked_, 4);
}

TEST_F(HearingTest, ALoopThatIsLateAndHasNotReadAllIsDeaf) {
  add(40);
  judge();
  agents_[7].has_unread = true;
  now_ += agent_pause_max + every;
  const auto late = judge();
  EXPECT_FALSE(late.awake);
  EXPECT_TRUE(late.excused.empty()) << "it knows of nobody";
  EXPECT_TRUE(go_on(every).awake) << "and then it was in time";
}

TEST_F(HearingTest, ALoopThatIsLateAndHasReadAllIsAwake) {
  add(40);
  judge();
  now_ += 30s;
  EXPECT_TRUE(judge().awake);
}

TEST_F(HearingTest, OneThatIsNotReadIsExcusedForAWhileAndHidesNobody) {
  add(40);
  agents_[7].has_unread = true;
  judge();
  auto verdict = go_on(excused_max);
  EXPECT_TRUE(verdict.awake);
  EXPECT_EQ(verdict.excused, std::vector<std::string>{"n7"});
  verdict = go_on(every);
  EXPECT_TRUE(verdict.awake);
  EXPECT_TRUE(verdict.excused.empty()) << "not for ever";
}

TEST_F(HearingTest, ManyThatAreNotReadAreTheLoopsOwnDeafness) {
  add(20);
  for (std::size_t at = 0; at < 2; ++at) agents_[at].has_unread = true;
  judge();
  EXPECT_EQ(go_on(5s).excused.size(), 2U);
  agents_[2].has_unread = true;
  EXPECT_FALSE(go_on(every).awake);
  add(20);
  EXPECT_TRUE(go_on(every).awake) << "of so many, three are not many";
}

TEST_F(HearingTest, WhoseMessageIsNotWholeIsReadAndNeedsNoExcuse) {
  add(4);
  agents_[0].has_unread = true;
  judge();
  for (int round = 0; round < 50; ++round) {
    ++agents_[0].reads;
    EXPECT_TRUE(go_on(every).excused.empty());
  }
}

TEST_F(HearingTest, WhoSpeaksForNobodyIsNoNodeThatIsThere) {
  add(4);
  agents_[0].has_unread = true;
  agents_[0].node.clear();
  judge();
  const auto verdict = go_on(5s);
  EXPECT_TRUE(verdict.awake);
  EXPECT_TRUE(verdict.excused.empty());
}

}  // namespace
}  // namespace tutti::driver
