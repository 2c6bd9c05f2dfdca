#include "comm/verdict.hpp"

#include <gtest/gtest.h>

namespace tutti::comm {
namespace {

OperationRecord all_reduce(std::uint64_t sequence, std::uint64_t bytes = 4 << 20) {
  return {.group = 9,
          .sequence = sequence,
          .operation = Operation::all_reduce,
          .type = DataType::f32,
          .bytes = bytes};
}

Question question() {
  return {.group = 9,
          .group_name = "dp",
          .members = {0, 1, 2, 3},
          .asker = 0,
          .waited_ns = 5'000'000'000,
          .operation = all_reduce(812)};
}

std::vector<Attendance> four() { return {{"n1"}, {"n1"}, {"n2"}, {"n2"}}; }

Report entered(int rank, const OperationRecord& record) {
  return {.rank = rank,
          .sequences = {{record.group, record.sequence}},
          .same = record,
          .processes = {{rank, 'S', 3}}};
}

// A rank that has not come to the asked operation, and what it is in instead.
Report late(int rank, std::map<std::uint64_t, std::uint64_t> sequences, std::vector<Question> waits = {}) {
  return {.rank = rank,
          .sequences = std::move(sequences),
          .waits = std::move(waits),
          .processes = {{rank, 'R', 100}}};
}

Question in_earlier(std::uint64_t sequence, std::int64_t waited_ns = 5'200'000'000) {
  Question wait = question();
  wait.operation = all_reduce(sequence);
  wait.waited_ns = waited_ns;
  return wait;
}

constexpr std::uint64_t pair_group = 30;

// A rank that receives from another one, in a group of the two.
Question in_recv(int from, int to, std::uint64_t group = pair_group) {
  return {.group = group,
          .group_name = "pp, " + std::to_string(from) + " to " + std::to_string(to),
          .members = {from, to},
          .asker = to,
          .waited_ns = 6'000'000'000,
          .operation = {.group = group,
                        .sequence = 5,
                        .operation = Operation::recv,
                        .type = DataType::f32,
                        .root = from,
                        .bytes = 8192}};
}

TEST(Verdict, ARankThatNeverEntered) {
  const std::vector<Report> reports{entered(0, all_reduce(812)), entered(1, all_reduce(812)),
                                    entered(2, all_reduce(812)), late(3, {{9, 811}})};
  EXPECT_EQ(
      judge(question(), reports, four()).text,
      "rank 3 on node n2 never entered all_reduce #812 (4 MiB, group dp); the others have waited 5.0 s; "
      "it is running, 100% CPU");
}

TEST(Verdict, ARankInAnotherOperation) {
  OperationRecord other = all_reduce(812);
  other.operation = Operation::broadcast;
  other.root = 0;
  const std::vector<Report> reports{entered(0, all_reduce(812)), entered(1, all_reduce(812)),
                                    entered(2, all_reduce(812)), entered(3, other)};
  EXPECT_EQ(judge(question(), reports, four()).text,
            "rank 3 on node n2 called broadcast #812 where the others called all_reduce (group dp)");
  EXPECT_TRUE(judge(question(), reports, four()).hopeless);
}

TEST(Verdict, ARankWithAnotherSize) {
  const std::vector<Report> reports{entered(0, all_reduce(812)), entered(1, all_reduce(812, 400)),
                                    entered(2, all_reduce(812)), entered(3, all_reduce(812))};
  EXPECT_EQ(
      judge(question(), reports, four()).text,
      "rank 1 on node n1 called all_reduce of 400 B f32 sum #812 where the others called all_reduce of 4 MiB "
      "f32 sum (group dp)");
}

TEST(Verdict, AFrozenRankIsSeenByItsNeighbour) {
  Report neighbour = entered(2, all_reduce(812));
  neighbour.processes.push_back({3, 'T', 0});
  const std::vector<Report> reports{entered(0, all_reduce(812)), entered(1, all_reduce(812)), neighbour};
  EXPECT_EQ(
      judge(question(), reports, four()).text,
      "rank 3 on node n2 does not answer in all_reduce #812 (4 MiB, group dp); the others have waited 5.0 s; "
      "it is stopped (SIGSTOP)");
}

TEST(Verdict, AHostThatCannotBeReached) {
  const std::vector<Report> reports{entered(0, all_reduce(812)), entered(1, all_reduce(812))};
  EXPECT_EQ(judge(question(), reports, four()).text,
            "rank 2 on node n2 (and 1 more: 3) does not answer in all_reduce #812 (4 MiB, group dp); the "
            "others have "
            "waited 5.0 s; its host cannot be reached or it is frozen");
}

TEST(Verdict, ARankThatLeft) {
  auto ranks = four();
  ranks[1].left = true;
  const std::vector<Report> reports{entered(0, all_reduce(812)), entered(2, all_reduce(812)),
                                    entered(3, all_reduce(812))};
  EXPECT_EQ(judge(question(), reports, ranks).text,
            "rank 1 on node n1 left without entering all_reduce #812 (4 MiB, group dp); the others have "
            "waited 5.0 s");
}

// Rank 3 froze in the middle of #811: ranks 0 and 2 have its data, rank 1 has not.
TEST(Verdict, ARankThatIsBehindBecauseItWaitsForAFrozenOne) {
  Report neighbour = entered(2, all_reduce(812));
  neighbour.processes.push_back({3, 'T', 0});
  const std::vector<Report> reports{entered(0, all_reduce(812)), late(1, {{9, 811}}, {in_earlier(811)}),
                                    neighbour};
  EXPECT_EQ(
      judge(question(), reports, four()).text,
      "rank 3 on node n2 does not answer in all_reduce #811 (4 MiB, group dp); the others have waited 5.2 s; "
      "it is stopped (SIGSTOP)");
}

TEST(Verdict, SeveralThatAreBehindWaitForTheSameOne) {
  const std::vector<Report> reports{entered(0, all_reduce(812)), late(1, {{9, 811}}, {in_earlier(811)}),
                                    late(2, {{9, 811}}, {in_earlier(811)})};
  EXPECT_TRUE(judge(question(), reports, four())
                  .text.starts_with("rank 3 on node n2 does not answer in all_reduce #811 "));
}

TEST(Verdict, ARankThatWaitsInAnotherGroupForOneThatComputes) {
  const std::vector<Report> reports{entered(0, all_reduce(812)), entered(1, all_reduce(812)),
                                    late(2, {{9, 811}, {pair_group, 5}}, {in_recv(4, 2)}),
                                    entered(3, all_reduce(812)), late(4, {{pair_group, 4}})};
  const std::vector<Attendance> ranks{{"n1"}, {"n1"}, {"n2"}, {"n2"}, {"n3"}};
  EXPECT_EQ(
      judge(question(), reports, ranks).text,
      "rank 4 on node n3 never entered recv #5 (8 KiB, group pp, 4 to 2); the others have waited 6.0 s; "
      "it is running, 100% CPU");
}

TEST(Verdict, AChainIsFollowedToItsEnd) {
  constexpr std::uint64_t next_group = 31;
  const std::vector<Report> reports{entered(0, all_reduce(812)), entered(1, all_reduce(812)),
                                    entered(3, all_reduce(812)),
                                    late(2, {{9, 811}, {pair_group, 5}}, {in_recv(4, 2)}),
                                    late(4, {{pair_group, 4}, {next_group, 5}}, {in_recv(5, 4, next_group)})};
  const std::vector<Attendance> ranks{{"n1"}, {"n1"}, {"n2"}, {"n2"}, {"n3"}, {"n3"}};
  EXPECT_EQ(judge(question(), reports, ranks).text,
            "rank 5 on node n3 does not answer in recv #5 (8 KiB, group pp, 5 to 4); the others have waited "
            "6.0 s; its host cannot be reached or it is frozen");
}

TEST(Verdict, OfThoseThatAreBehindTheOneThatWaitsForNobodyIsNamed) {
  const std::vector<Report> reports{entered(0, all_reduce(812)), late(1, {{9, 811}}, {in_earlier(811)}),
                                    entered(2, all_reduce(812)), late(3, {{9, 811}})};
  EXPECT_TRUE(judge(question(), reports, four())
                  .text.starts_with("rank 3 on node n2 never entered all_reduce #812 "));
}

TEST(Verdict, OneThatDidNotComeToTheEarlierOperationEither) {
  const std::vector<Report> reports{entered(0, all_reduce(812)), late(1, {{9, 811}}, {in_earlier(811)}),
                                    entered(2, all_reduce(812)), late(3, {{9, 810}}, {in_earlier(810, 1)})};
  EXPECT_TRUE(judge(question(), reports, four())
                  .text.starts_with("rank 3 on node n2 never entered all_reduce #812 "));
}

// What rank 3 has in flight waits for rank 0, and rank 0 waits for rank 3: it leads to nobody.
TEST(Verdict, ARankIsNotExcusedByOneThatWaitsForIt) {
  const std::vector<Report> reports{entered(0, all_reduce(812)), entered(1, all_reduce(812)),
                                    entered(2, all_reduce(812)),
                                    late(3, {{9, 811}, {pair_group, 5}}, {in_recv(0, 3)})};
  EXPECT_EQ(
      judge(question(), reports, four()).text,
      "rank 3 on node n2 never entered all_reduce #812 (4 MiB, group dp); the others have waited 5.0 s; "
      "it is running, 100% CPU");
}

TEST(Verdict, AWaitThatHasOnlyJustBegunExcusesNobody) {
  Question wait = in_recv(4, 3);
  wait.waited_ns = 2'000'000;
  const std::vector<Report> reports{entered(0, all_reduce(812)), entered(1, all_reduce(812)),
                                    entered(2, all_reduce(812)), late(3, {{9, 811}, {pair_group, 5}}, {wait}),
                                    late(4, {{pair_group, 4}})};
  EXPECT_TRUE(judge(question(), reports, four())
                  .text.starts_with("rank 3 on node n2 never entered all_reduce #812 "));
}

TEST(Verdict, AChainWithoutAnEndIsGivenUp) {
  // Each rank receives from the next one, far more of them than any pipeline has.
  constexpr int ranks = 20'000;
  Question asked = question();
  asked.members = {0};
  std::vector<Report> reports;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto group = static_cast<std::uint64_t>(100 + rank);
    reports.push_back(late(rank, {{group, 5}}, {in_recv(rank + 1, rank, group)}));
  }
  EXPECT_TRUE(judge(asked, reports, {}).text.starts_with("rank 0 never entered all_reduce #812 "));
}

TEST(Verdict, WithoutACulpritTheNetworkIsNamed) {
  std::vector<Report> reports;
  for (int rank = 0; rank < 4; ++rank) reports.push_back(entered(rank, all_reduce(812)));
  EXPECT_EQ(judge(question(), reports, four()).text,
            "all_reduce #812 (4 MiB, group dp) did not finish within 5.0 s: every rank has entered it and "
            "answers, so "
            "the data is not moving between them");
}

TEST(Verdict, ASendThatMeetsARecvIsNoMismatch) {
  Question asked = question();
  asked.members = {0, 1};
  OperationRecord send{.group = 9, .sequence = 812, .operation = Operation::send, .root = 1, .bytes = 8};
  OperationRecord recv = send;
  recv.operation = Operation::recv;
  recv.root = 0;
  asked.operation = recv;
  EXPECT_NE(judge(asked, std::vector<Report>{entered(0, send), entered(1, recv)}, four())
                .text.find("did not finish"),
            std::string::npos);
}

TEST(Verdict, QuestionsAndReportsTravel) {
  const auto question_back = Question::decode(question().encode());
  ASSERT_TRUE(question_back);
  EXPECT_EQ(question_back->members, question().members);
  EXPECT_EQ(question_back->operation, question().operation);
  EXPECT_EQ(question_back->group_name, "dp");
  Report report = entered(3, all_reduce(812));
  report.waits = {in_recv(4, 3), in_earlier(811)};
  const auto report_back = Report::decode(report.encode());
  ASSERT_TRUE(report_back);
  EXPECT_EQ(report_back->same, report.same);
  EXPECT_EQ(report_back->sequences, report.sequences);
  ASSERT_EQ(report_back->waits.size(), 2U);
  EXPECT_EQ(report_back->waits[0].operation, in_recv(4, 3).operation);
  EXPECT_EQ(report_back->waits[0].members, (std::vector<int>{4, 3}));
  EXPECT_EQ(report_back->waits[1].waited_ns, 5'200'000'000);
  EXPECT_EQ(report_back->processes.size(), 1U);
  const std::string asked = question().encode();
  for (std::size_t cut = 0; cut < asked.size(); ++cut) {
    EXPECT_FALSE(Question::decode(asked.substr(0, cut))) << cut;
  }
  const std::string answered = report.encode();
  for (std::size_t cut = 0; cut < answered.size(); ++cut) {
    EXPECT_FALSE(Report::decode(answered.substr(0, cut))) << cut;
  }
}

TEST(Verdict, AReportWithTooManyWaitsIsRefused) {
  Report report = entered(3, all_reduce(812));
  report.waits.assign(Report::waits_max + 1, in_earlier(811));
  EXPECT_FALSE(Report::decode(report.encode()));
}

TEST(Recorder, PendingIsWhatHasBegunAndNotEnded) {
  Recorder recorder;
  const auto first = recorder.enqueued(all_reduce(1));
  const auto second = recorder.enqueued(all_reduce(2));
  const auto third = recorder.enqueued(all_reduce(3));
  recorder.enqueued(all_reduce(4));
  recorder.started(third, 10);
  recorder.started(second, 20);
  recorder.started(first, 30);
  recorder.ended(second, 40);
  const auto pending = recorder.pending();
  ASSERT_EQ(pending.size(), 2U);
  EXPECT_EQ(pending[0].sequence, 3U);
  EXPECT_EQ(pending[1].sequence, 1U);
}

TEST(Recorder, KeepsTheLast4096) {
  Recorder recorder;
  for (std::uint64_t i = 1; i <= 5000; ++i) {
    const auto handle = recorder.enqueued(all_reduce(i));
    recorder.started(handle, 10);
    if (i != 5000) recorder.ended(handle, 20);
  }
  const auto records = recorder.records();
  ASSERT_EQ(records.size(), 4096U);
  EXPECT_EQ(records.front().sequence, 905U);
  EXPECT_EQ(records.back().sequence, 5000U);
  EXPECT_EQ(records.back().ended_ns, 0);
  EXPECT_EQ(records[4094].ended_ns, 20);
  EXPECT_EQ(records.back().bytes, 4U << 20);
}

}  // namespace
}  // namespace tutti::comm
