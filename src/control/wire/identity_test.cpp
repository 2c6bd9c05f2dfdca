#include <gtest/gtest.h>

#include "control/wire/messages.hpp"
#include "control/wire/objects.hpp"

namespace tutti::wire {
namespace {

cluster::Hello full_hello() {
  cluster::Hello hello{"n1", "", "", 7, {}, {}};
  hello.inventory.devices = {{"H100", gib(80), "GPU-1a2b", 0, false}, {"unknown", Bytes(), "", -1, true}};
  hello.inventory.watch_max = 300;
  hello.identity = "a1b2";
  hello.machine = "gpu-17 0c4e";
  hello.cluster = "c3d4";
  hello.jobs_seen = 41;
  hello.jobs_saved = 43;
  hello.keeps_apart = true;
  hello.keeps = cluster::NodeKeeps{gib(20), 20'000, 24h * 14, 90s};
  hello.lacks = "a filter of devices";
  hello.ports = {20'001, 20'002};
  return hello;
}

bool accepted(const cluster::Hello& hello) { return decode_agent_message(encode(AgentMessage(hello))).ok(); }

TEST(Identity, TravelsWithAHello) {
  const auto back = decode_agent_message(encode(AgentMessage(full_hello())));
  ASSERT_TRUE(back.ok()) << back.error().text();
  const auto& same = std::get<cluster::Hello>(*back);
  EXPECT_EQ(same.inventory, full_hello().inventory);
  EXPECT_EQ(same.identity, "a1b2");
  EXPECT_EQ(same.machine, "gpu-17 0c4e");
  EXPECT_EQ(same.cluster, "c3d4");
  EXPECT_EQ(same.jobs_seen, 41U);
  EXPECT_EQ(same.jobs_saved, 43U);
  EXPECT_EQ(same.keeps, full_hello().keeps);
  EXPECT_TRUE(same.keeps_apart);
  EXPECT_EQ(same.lacks, "a filter of devices");
  EXPECT_EQ(same.ports, (std::vector{20'001, 20'002}));
}

TEST(Identity, WhatNobodyHonestSaysIsRefused) {
  for (const char* id : {"../..", "a b", "a\nb"}) {
    cluster::Hello hello = full_hello();
    hello.cluster = id;
    EXPECT_FALSE(accepted(hello)) << id;
    hello = full_hello();
    hello.identity = id;
    EXPECT_FALSE(accepted(hello)) << id;
  }
  cluster::Hello many_jobs = full_hello();
  many_jobs.jobs_seen = ~std::uint64_t{0};
  EXPECT_FALSE(accepted(many_jobs)) << "no id would be left";
  many_jobs = full_hello();
  many_jobs.jobs_saved = ~std::uint64_t{0};
  EXPECT_FALSE(accepted(many_jobs)) << "no id would be left";
  cluster::Hello sees_less_than_nothing = full_hello();
  sees_less_than_nothing.inventory.watch_max = -1;
  EXPECT_FALSE(accepted(sees_less_than_nothing));
  for (const std::int32_t port : {-1, 0, 65'536}) {
    cluster::Hello hello = full_hello();
    hello.ports = {port};
    EXPECT_FALSE(accepted(hello)) << port;
  }
  for (const char* uuid : {"GPU-1,GPU-2", "a b", "a\nLD_PRELOAD=x"}) {
    cluster::Hello hello = full_hello();
    hello.inventory.devices[0].uuid = uuid;
    EXPECT_FALSE(accepted(hello)) << uuid;
  }
}

TEST(Identity, TheAnswersOfAControllerTravel) {
  const auto welcome = decode_controller_message(encode(ControllerMessage(Welcome{"c3d4"})));
  ASSERT_TRUE(welcome.ok());
  EXPECT_EQ(std::get<Welcome>(*welcome).cluster, "c3d4");
  EXPECT_FALSE(decode_controller_message(encode(ControllerMessage(Welcome{"../x"}))).ok());
  const auto notice = decode_controller_message(encode(ControllerMessage(Notice{"why", true})));
  ASSERT_TRUE(notice.ok());
  EXPECT_EQ(std::get<Notice>(*notice).text, "why");
  EXPECT_TRUE(std::get<Notice>(*notice).refused);
  const auto ports = decode_agent_message(encode(AgentMessage(FreePorts{{20'001}})));
  ASSERT_TRUE(ports.ok());
  EXPECT_EQ(std::get<FreePorts>(*ports).ports, std::vector{20'001});
}

TEST(Identity, IsStored) {
  cluster::State state;
  state.cluster_id = "c3d4";
  state.next_job = 42;
  state.clock = {"boot", -5s};
  state.there_at = Instant(9h);
  cluster::State back;
  ASSERT_TRUE(decode_into(back, cluster_key(), encode_cluster(state)).ok());
  EXPECT_EQ(back.cluster_id, "c3d4");
  EXPECT_EQ(back.next_job, 42U);
  EXPECT_EQ(back.clock, state.clock);
  EXPECT_EQ(back.there_at, state.there_at);
  cluster::Node node;
  node.name = "n1";
  node.identity = "a1b2";
  ASSERT_TRUE(decode_into(back, node_key("n1"), encode(node)).ok());
  EXPECT_EQ(back.nodes.at("n1").identity, "a1b2");
  EXPECT_FALSE(decode_into(back, cluster_key(), "\xff").ok());
}

}  // namespace
}  // namespace tutti::wire
