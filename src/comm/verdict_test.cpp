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
  return {.rank = rank, .last_sequence = record.sequence, .same = record, .processes = {{rank, 'S', 3}}};
}

TEST(Verdict, ARankThatNeverEntered) {
  const std::vector<Report> reports{
      entered(0, all_reduce(812)),
      entered(1, all_reduce(812)),
      entered(2, all_reduce(812)),
      {.rank = 3, .last_sequence = 811, .same = {}, .processes = {{3, 'R', 100}}}};
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
  const Report report = entered(3, all_reduce(812));
  const auto report_back = Report::decode(report.encode());
  ASSERT_TRUE(report_back);
  EXPECT_EQ(report_back->same, report.same);
  EXPECT_EQ(report_back->processes.size(), 1U);
  for (const std::string& whole : {question().encode(), report.encode()}) {
    for (std::size_t cut = 0; cut < whole.size(); ++cut) {
      EXPECT_FALSE(Question::decode(whole.substr(0, cut))) << cut;
      EXPECT_FALSE(Report::decode(whole.substr(0, cut))) << cut;
    }
  }
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
