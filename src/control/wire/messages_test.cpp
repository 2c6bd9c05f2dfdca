#include <gtest/gtest.h>

#include "base/prng.hpp"
#include "control/wire/messages.hpp"

namespace tutti::wire {
namespace {

TEST(Messages, WhatANodeCallsItsDevicesIsMadeVisible) {
  cluster::Hello hello{"n1", "here\n", "127.0.0.1", 1, {}, {}};
  hello.inventory.devices = {{"H100\x1b[2J", gib(80), "uuid"}};
  const auto back = decode_agent_message(encode(AgentMessage(hello)));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(std::get<cluster::Hello>(*back).inventory.devices.front().model, "H100\\x1b[2J");
  EXPECT_EQ(std::get<cluster::Hello>(*back).location, "here\\x0a");
}

TEST(Messages, AnEndSaysHowLongAgoItWasAndWhetherItWasAskedFor) {
  cluster::RankReport report{cluster::JobId(1), 2, 3, {cluster::RankState::exited, 143, ""}, 90s};
  report.status.told = cluster::Told::yes;
  auto back = decode_agent_message(encode(AgentMessage(RankReports{{report}})));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(std::get<RankReports>(*back).ranks.at(0).ended_ago, 90s);
  EXPECT_EQ(std::get<RankReports>(*back).ranks.at(0).status, report.status);
  report.ended_ago = -1h;
  report.status.told = static_cast<cluster::Told>(7);
  back = decode_agent_message(encode(AgentMessage(RankReports{{report}})));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(std::get<RankReports>(*back).ranks.at(0).ended_ago, 0s);
  EXPECT_EQ(std::get<RankReports>(*back).ranks.at(0).status.told, cluster::Told::unknown);
}

TEST(Messages, OneThatRunsSaysHowLong) {
  for (const Duration ran : {Duration(90s), Duration(-90s), Duration()}) {
    const cluster::RankReport report{cluster::JobId(1), 2, 3, {cluster::RankState::started}, {}, ran};
    const auto back = decode_agent_message(encode(AgentMessage(RankReports{{report}})));
    ASSERT_TRUE(back.ok());
    EXPECT_EQ(std::get<RankReports>(*back).ranks.at(0).ran, ran);
  }
}

TEST(Messages, WhatAProgramWroteNeedNotBeText) {
  const cluster::RankReport report{cluster::JobId(1),
                                   0,
                                   0,
                                   {cluster::RankState::exited, 1,
                                    "a\xff"
                                    "b"}};
  const auto back = decode_agent_message(encode(AgentMessage(RankReports{{report}})));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(std::get<RankReports>(*back).ranks.at(0).status.detail, "a\uFFFDb");
}

TEST(Messages, TravelBothWays) {
  const cluster::Hello hello{"n1",
                             "s/p/r",
                             "10.0.0.1",
                             7,
                             {{{"H100", gib(80), "u", 0}}, 8, gib(1)},
                             {{cluster::JobId(3), 1, 2, {cluster::RankState::exited, 9, "why", true}}}};
  const auto back = decode_agent_message(encode(AgentMessage(hello)));
  ASSERT_TRUE(back.ok()) << back.error().text();
  const auto& same = std::get<cluster::Hello>(*back);
  EXPECT_EQ(same.node, "n1");
  EXPECT_EQ(same.inventory, hello.inventory);
  ASSERT_EQ(same.ranks.size(), 1U);
  EXPECT_EQ(same.ranks[0].status, hello.ranks[0].status);

  StartRanks start;
  start.job = cluster::JobId(3);
  start.command = {"true"};
  start.ranks = {{5, {"RANK=5"}, "out"}};
  const auto started = decode_controller_message(encode(ControllerMessage(start)));
  ASSERT_TRUE(started.ok());
  EXPECT_EQ(std::get<StartRanks>(*started).ranks[0].output, "out");

  const auto ended =
      decode_controller_message(encode(ControllerMessage(EndRanks{cluster::JobId(3), 1, {5, 7}})));
  ASSERT_TRUE(ended.ok());
  EXPECT_EQ(std::get<EndRanks>(*ended).ranks, (std::vector<std::int32_t>{5, 7}));
  EXPECT_FALSE(std::get<EndRanks>(*ended).at_once);
  const auto killed =
      decode_controller_message(encode(ControllerMessage(EndRanks{cluster::JobId(3), 1, {5}, true})));
  EXPECT_TRUE(std::get<EndRanks>(*killed).at_once);
}

TEST(Messages, BadOnesAreRefused) {
  EXPECT_FALSE(decode_agent_message("").ok());
  EXPECT_FALSE(decode_agent_message("\xff\xff\xff").ok());
  EXPECT_FALSE(decode_controller_message("\xff").ok());
  for (const char* name : {"", "a/b", "..", "-x", "a b", "a\n"}) {
    EXPECT_FALSE(decode_agent_message(encode(AgentMessage(cluster::Hello{name, "", "", 0, {}, {}}))).ok())
        << name;
  }
}

// Else a rank that prints bytes or forges its end would cost its node the connection, again and again.
TEST(Messages, WhatARankHasLeftIsMadeToFit) {
  const cluster::RankReport report{
      cluster::JobId(1), 0, 0, {cluster::RankState::exited, 4711, std::string(detail_bytes_max, '\xff')}};
  const auto back = decode_agent_message(encode(AgentMessage(RankReports{{report}})));
  ASSERT_TRUE(back.ok());
  const cluster::RankStatus& status = std::get<RankReports>(*back).ranks.at(0).status;
  EXPECT_EQ(status.exit_code, 255);
  EXPECT_LE(status.detail.size(), detail_bytes_max);
  EXPECT_TRUE(status.detail.ends_with("\uFFFD"));
  cluster::Hello hello{"n1", "s", "a", 7, {}, {report}};
  EXPECT_TRUE(decode_agent_message(encode(AgentMessage(hello))).ok());
}

// Bytes that were changed on the way are refused or harmless, never a crash.
TEST(Messages, SurviveChangedBytes) {
  Prng prng(5);
  const std::string fine = encode(AgentMessage(cluster::Hello{
      "n1", "s", "a", 7, {{{"H100", gib(80), "u", 0}}, 8, gib(1)}, {{cluster::JobId(3), 1, 2, {}}}}));
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes = fine;
    for (std::uint64_t change = 0; change <= prng.below(4); ++change)
      bytes[prng.below(bytes.size())] = static_cast<char>(prng.below(256));
    if (prng.chance(0.3)) bytes.resize(prng.below(bytes.size()));
    static_cast<void>(decode_agent_message(bytes));
    static_cast<void>(decode_controller_message(bytes));
  }
}

// Their names become those of files, and what comes is held in memory.
TEST(Messages, SecretsThatAreNoneAreRefused) {
  StartRanks start;
  start.job = cluster::JobId(1);
  const auto decoded = [&start] { return decode_controller_message(encode(ControllerMessage(start))); };
  start.secrets = {{"TOKEN", std::string("a\0b", 3)}, {"EMPTY", ""}};
  const auto read = decoded();
  ASSERT_TRUE(read);
  EXPECT_EQ(std::get<StartRanks>(*read).secrets[0].value, std::string("a\0b", 3));
  for (const char* name : {"../passwd", ".hidden", "", "a/b"}) {
    start.secrets = {{name, "value"}};
    EXPECT_FALSE(decoded()) << name;
  }
  start.secrets = {{"A", "1"}, {"A", "2"}};
  EXPECT_FALSE(decoded());
  start.secrets = {{"A", std::string(cluster::job_secrets_bytes_max + 1, 'x')}};
  EXPECT_FALSE(decoded());
  start.secrets.clear();
  for (std::size_t at = 0; at <= cluster::job_secrets_max; ++at)
    start.secrets.push_back({"S" + std::to_string(at), "x"});
  EXPECT_FALSE(decoded());
}

}  // namespace
}  // namespace tutti::wire
