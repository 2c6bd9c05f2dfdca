#include "control/driver/listener.hpp"

#include <gtest/gtest.h>

namespace tutti::driver {
namespace {

std::string hello_frame(const std::string& node) {
  return wire::encode(wire::AgentMessage(cluster::Hello{node, "", "", 1, {}, {}}));
}
std::string beat_frame(std::uint64_t echo = 0) {
  return wire::encode(wire::AgentMessage(wire::Heartbeat{"", echo}));
}

TEST(Listener, AConnectionSpeaksForANodeAfterItsHello) {
  Listener listener;
  listener.open(1, "10.1.2.3");
  EXPECT_EQ(listener.receive(1, beat_frame()).refused, "no Hello");
  const auto heard = listener.receive(1, hello_frame("a"));
  ASSERT_TRUE(heard.event.has_value());
  EXPECT_EQ(std::get<cluster::Hello>(*heard.event).address, "10.1.2.3") << "the one that it is seen under";
  EXPECT_EQ(listener.node_of(1), "a");
  EXPECT_EQ(listener.speaker("a"), 1U);
  const auto beat = listener.receive(1, beat_frame(7));
  EXPECT_EQ(std::get<cluster::Heard>(*beat.event).node, "a");
  EXPECT_EQ(beat.echo, 7U);
  EXPECT_NE(listener.receive(1, hello_frame("b")).refused, "") << "a connection has one node";
  EXPECT_NE(listener.receive(1, "garbage").refused, "");
  EXPECT_EQ(listener.close(1), "a");
  EXPECT_FALSE(listener.speaker("a").has_value());
  EXPECT_FALSE(listener.receive(1, beat_frame()).event.has_value()) << "it is closed";
}

TEST(Listener, ANewerConnectionReplacesAnOlderOne) {
  Listener listener;
  listener.open(1, "");
  listener.open(2, "");
  ASSERT_TRUE(listener.receive(1, hello_frame("a")).event.has_value());
  EXPECT_EQ(listener.receive(2, hello_frame("a")).replaced, 1U);
  EXPECT_FALSE(listener.receive(1, beat_frame()).event.has_value());
  EXPECT_NE(listener.receive(1, hello_frame("a")).refused, "") << "it is older than what was heard since";
  EXPECT_FALSE(listener.close(1).has_value());
  EXPECT_EQ(listener.speaker("a"), 2U);
}

// It was stopped, or busy: what came meanwhile says how long ago things were when it was sent.
TEST(Listener, AnEndThatWaitedToBeReadIsOlderThanItSays) {
  Listener listener;
  listener.open(1, "");
  ASSERT_TRUE(listener.receive(1, hello_frame("a"), Instant(99s)).event.has_value());
  wire::Heartbeat beat;
  beat.sent = 5000s;  // its clock has nothing to do with ours
  listener.receive(1, wire::encode(wire::AgentMessage(beat)), Instant(100s));
  wire::RankReports reports{{{cluster::JobId(1), 0, 0, {cluster::RankState::exited, 0, ""}, 2s},
                             {cluster::JobId(2), 0, 0, {cluster::RankState::started}, {}, 9s},
                             {cluster::JobId(3), 0, 0, {cluster::RankState::started}}}};
  reports.sent = 5001s;
  const auto read_at = [&](Instant now) {
    return std::get<cluster::Reported>(
               *listener.receive(1, wire::encode(wire::AgentMessage(reports)), now).event)
        .ranks;
  };
  EXPECT_EQ(read_at(Instant(101s)).at(0).ended_ago, 2s);
  EXPECT_EQ(read_at(Instant(141s)).at(0).ended_ago, 42s);
  EXPECT_EQ(read_at(Instant(141s)).at(1).ended_ago, 0s) << "it runs";
  EXPECT_EQ(read_at(Instant(141s)).at(1).ran, 49s);
  EXPECT_EQ(read_at(Instant(141s)).at(1).heard_at, Instant(141s));
  EXPECT_EQ(read_at(Instant(141s)).at(2).ran, 0s) << "nobody knows";
  reports.sent = {};
  EXPECT_EQ(read_at(Instant(141s)).at(0).ended_ago, 2s) << "an agent of an earlier version does not say";
}

TEST(Listener, PiecesOfLogsAreForTheirReaders) {
  Listener listener;
  listener.open(1, "");
  ASSERT_TRUE(listener.receive(1, hello_frame("a")).event.has_value());
  const auto heard = listener.receive(1, wire::encode(wire::AgentMessage(wire::LogChunk{3, 0, "text"})));
  EXPECT_FALSE(heard.event.has_value());
  ASSERT_TRUE(heard.log.has_value());
  EXPECT_EQ(std::get<wire::LogChunk>(*heard.log).data, "text");
}

// Heartbeats wait behind logs that are read slowly: whoever sends logs is there.
TEST(Listener, LogsSayOnceInAHeartbeatThatTheNodeIsThere) {
  Listener listener;
  listener.open(1, "");
  ASSERT_TRUE(listener.receive(1, hello_frame("a"), Instant(100s)).event.has_value());
  const auto says_so = [&](Instant now) {
    const auto heard = listener.receive(1, wire::encode(wire::AgentMessage(wire::LogChunk{3, 0, "x"})), now);
    EXPECT_TRUE(heard.log.has_value());
    return heard.event.has_value() && std::get<cluster::Reported>(*heard.event).node == "a";
  };
  EXPECT_FALSE(says_so(Instant(100s) + cluster::heartbeat_every / 2));
  EXPECT_TRUE(says_so(Instant(100s) + cluster::heartbeat_every));
  EXPECT_FALSE(says_so(Instant(100s) + cluster::heartbeat_every));
  EXPECT_TRUE(says_so(Instant(100s) + 2 * cluster::heartbeat_every));
}

TEST(Listener, WhoeverHasProvedToBeANodeSpeaksForThatOneAlone) {
  Listener listener;
  listener.open(1, "", "a");
  const auto heard = listener.receive(1, hello_frame("b"));
  EXPECT_EQ(heard.refused, "it has the certificate of node a and says that it is b");
  EXPECT_EQ(heard.claimed, "b");
  ASSERT_EQ(heard.answers.size(), 1U);
  EXPECT_TRUE(std::get<wire::Notice>(heard.answers.front()).refused);
  EXPECT_FALSE(listener.speaker("b").has_value());
  listener.open(2, "", "a");
  EXPECT_TRUE(listener.receive(2, hello_frame("a")).event.has_value());
}

TEST(Listener, ForANodeWithACertificateNobodySpeaksWithoutIt) {
  Listener listener;
  listener.protect([](const std::string& node) { return node == "a"; });
  listener.open(1, "");
  EXPECT_EQ(listener.receive(1, hello_frame("a")).refused, "node a has a certificate, and it shows none");
  EXPECT_TRUE(listener.receive(1, hello_frame("b")).event.has_value());
  listener.open(2, "", "a");
  EXPECT_TRUE(listener.receive(2, hello_frame("a")).event.has_value());
}

TEST(Listener, ANodeThatPromisesLessThanIsDemandedIsIllUntilItPromisesIt) {
  const auto greeting = [](bool keeps_apart, const std::string& lacks) {
    cluster::Hello hello{"a", "", "", 1, {}, {}};
    hello.keeps_apart = keeps_apart;
    hello.lacks = lacks;
    return wire::encode(wire::AgentMessage(hello));
  };
  Listener listener;
  const auto hello_illness = [&](bool keeps_apart, const std::string& lacks = "") {
    return std::get<cluster::Hello>(*listener.receive(1, greeting(keeps_apart, lacks)).event).illness;
  };
  const auto beat_illness = [&] {
    return std::get<cluster::Heard>(*listener.receive(1, beat_frame()).event).illness;
  };
  listener.open(1, "");
  EXPECT_EQ(hello_illness(false), "") << "nothing is demanded";
  EXPECT_EQ(hello_illness(true, "a filter of devices"), "");
  listener.demand_isolation();
  EXPECT_NE(beat_illness(), "");
  EXPECT_NE(hello_illness(false).find("--isolation user"), std::string::npos);
  // That its agent was started so is not enough.
  EXPECT_NE(hello_illness(true, "a filter of devices").find("a filter of devices"), std::string::npos);
  EXPECT_NE(beat_illness().find("a filter of devices"), std::string::npos);
  EXPECT_EQ(hello_illness(true), "");
  EXPECT_EQ(beat_illness(), "");
}

}  // namespace
}  // namespace tutti::driver
