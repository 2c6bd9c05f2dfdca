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

TEST(Listener, PiecesOfLogsAreForTheirReaders) {
  Listener listener;
  listener.open(1, "");
  ASSERT_TRUE(listener.receive(1, hello_frame("a")).event.has_value());
  const auto heard = listener.receive(1, wire::encode(wire::AgentMessage(wire::LogChunk{3, 0, "text"})));
  EXPECT_FALSE(heard.event.has_value());
  ASSERT_TRUE(heard.log.has_value());
  EXPECT_EQ(std::get<wire::LogChunk>(*heard.log).data, "text");
}

}  // namespace
}  // namespace tutti::driver
