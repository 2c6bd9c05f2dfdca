#include "control/driver/outbox.hpp"

#include <gtest/gtest.h>

#include "control/driver/turns.hpp"
#include "control/store/memory/memory_store.hpp"
#include "control/wire/messages.hpp"

namespace tutti::driver {
namespace {

struct OutboxTest : testing::Test {
  store::MemoryStore store;
  Instant now{1000s};
  Turns turns{store, [this] { return now; }};

  void SetUp() override { ASSERT_TRUE(turns.load().ok()); }

  Turns::Outcome happen(cluster::Event event) {
    std::vector<Item> items;
    items.push_back({std::move(event), nullptr, nullptr});
    return turns.turn(std::move(items), false);
  }
  void join(int nodes, std::int32_t cpus) {
    std::vector<Item> items;
    for (int node = 0; node < nodes; ++node) {
      cluster::Hello hello{"n" + std::to_string(node), "", "127.0.0.1", 1, {}, {}};
      hello.inventory.cpus = cpus;
      items.push_back({hello, nullptr, nullptr});
    }
    turns.turn(std::move(items), false);
  }
  static cluster::JobSpec spec(std::int32_t ranks) {
    cluster::JobSpec spec;
    spec.command = {"true"};
    spec.shape.ranks = ranks;
    return spec;
  }
  // The ranks that a delivery starts, by the real decoder; each message fits.
  static std::size_t ranks_in(const Delivery& delivery) {
    std::size_t ranks = 0;
    for (const Delivery::Message& message : delivery.messages) {
      EXPECT_LE(message.frame.size(), wire::message_bytes_max);
      const auto decoded = wire::decode_controller_message(message.frame);
      EXPECT_TRUE(decoded.ok());
      if (const auto* start = std::get_if<wire::StartRanks>(&*decoded)) ranks += start->ranks.size();
    }
    return ranks;
  }
};

// Whoever waits for an answer waits for the longest turn.
TEST_F(OutboxTest, TheTurnThatPlacesALargeGangDoesNothingElseForIt) {
  join(1'000, 4);
  std::vector<Item> items;
  items.push_back({cluster::Submit{{spec(50'000)}}, [](const auto&) {}, nullptr});
  const auto placed = turns.turn(std::move(items), true);
  EXPECT_EQ(placed.answers.size(), 1U);
  EXPECT_TRUE(turns.state().jobs.begin()->second.placed());
  EXPECT_TRUE(placed.delivery.jobs.empty());
  EXPECT_TRUE(placed.delivery.messages.empty());
  EXPECT_EQ(turns.patience(), Duration::zero());
  const auto next = turns.turn({}, true);
  EXPECT_EQ(next.delivery.jobs.size(), 1U);
  EXPECT_GT(ranks_in(next.delivery), 0U);
  // That ranks have started is no news of the job, and not worth a commit.
  const std::uint64_t revision = store.load()->revision;
  std::vector<Item> started;
  for (std::int32_t rank = 0; rank < 10; ++rank)
    started.push_back({cluster::Reported{turns.state().jobs.begin()->second.places[0].node,
                                         {cluster::JobId(1), 0, rank, {cluster::RankState::started}}},
                       nullptr, nullptr});
  EXPECT_TRUE(turns.turn(std::move(started), true).delivery.jobs.empty());
  EXPECT_EQ(store.load()->revision, revision);
}

TEST_F(OutboxTest, ALargeGangIsToldOverSeveralTurns) {
  join(1'000, 4);
  constexpr std::int32_t wanted = 50'000;
  std::size_t told = 0;
  auto outcome = happen(cluster::Submit{{spec(wanted)}});
  std::size_t turns_taken = 1;
  for (;; ++turns_taken) {
    const std::size_t now_told = ranks_in(outcome.delivery);
    EXPECT_LT(now_told, ranks_per_turn_max + 64);
    told += now_told;
    if (turns.patience() > 0s) break;
    outcome = turns.turn({}, false);
  }
  EXPECT_EQ(told, std::size_t{wanted});
  EXPECT_GE(turns_taken, wanted / ranks_per_turn_max);
}

TEST_F(OutboxTest, AnEndComesBehindItsStartsAndWhatIsOverIsNotStarted) {
  join(1'000, 4);
  auto submitted = happen(cluster::Submit{{spec(50'000)}});
  const std::size_t told = ranks_in(submitted.delivery);
  auto outcome = happen(cluster::Cancel{cluster::JobId(1), "me"});
  std::size_t ends = 0;
  for (;; outcome = turns.turn({}, false)) {
    for (const auto& message : outcome.delivery.messages) {
      const auto decoded = wire::decode_controller_message(message.frame);
      if (const auto* end = std::get_if<wire::EndRanks>(&*decoded)) ends += end->ranks.size();
      EXPECT_FALSE(ends > 0 && message.start) << "nothing starts behind the first end";
    }
    if (turns.patience() > 0s) break;
  }
  EXPECT_EQ(ends, 50'000U);
  EXPECT_LT(told, 50'000U);
}

TEST_F(OutboxTest, WhatDoesNotFitIntoAFrameGoesInSeveral) {
  join(1, 128);
  cluster::JobSpec wanted = spec(2'000);
  wanted.output = std::string(4'000, 'o') + "%t";
  for (int variable = 0; variable < 30; ++variable)
    wanted.env.push_back("V" + std::to_string(variable) + "=" + std::string(100'000, 'v'));
  const auto outcome = happen(cluster::Submit{{wanted}});
  EXPECT_EQ(ranks_in(outcome.delivery), 2'000U);
  EXPECT_GT(outcome.delivery.messages.size(), 1U);
}

// Then its agent may choose the port: no other node has been told of one.
TEST_F(OutboxTest, AGangOnOneNodeIsToldToBeWholeThere) {
  join(2, 1);
  const auto is_whole = [](const Turns::Outcome& outcome) {
    const auto message = wire::decode_controller_message(outcome.delivery.messages.front().frame);
    return std::get<wire::StartRanks>(*message).whole_gang;
  };
  EXPECT_TRUE(is_whole(happen(cluster::Submit{{spec(2)}})));
  cluster::JobSpec wide = spec(2);
  wide.shape.cpus = 1;
  const auto both = happen(cluster::Submit{{wide}});
  ASSERT_EQ(both.delivery.messages.size(), 2U);
  EXPECT_FALSE(is_whole(both));
}

TEST_F(OutboxTest, ValuesOfSecretsAreInTheMessagesAloneAndAJobWithoutThemIsHeld) {
  join(2, 1);
  const cluster::SecretId id{cluster::SecretId::Of::person, "ada", "TOKEN"};
  int opened = 0;
  bool is_open = true;
  turns.open_secrets_with([&](const std::string&, const cluster::Secret& secret) -> Result<std::string> {
    ++opened;
    EXPECT_EQ(secret.id, id);
    if (!is_open) return failed("no key");
    return std::string("plain\0value", 11);
  });
  happen(cluster::SetSecret{.id = id, .key = "k", .sealed = std::string(40, 's'), .bytes = 11});
  cluster::JobSpec wanted = spec(2);
  wanted.user = "ada";
  wanted.shape.cpus = 1;
  wanted.secrets = {"TOKEN"};
  const auto started = happen(cluster::Submit{{wanted}});
  ASSERT_EQ(started.delivery.messages.size(), 2U);
  EXPECT_EQ(opened, 1) << "once for the gang";
  for (const auto& message : started.delivery.messages) {
    const auto start = std::get<wire::StartRanks>(*wire::decode_controller_message(message.frame));
    ASSERT_EQ(start.secrets.size(), 1U);
    EXPECT_EQ(start.secrets[0].name, "TOKEN");
    EXPECT_EQ(start.secrets[0].value, std::string("plain\0value", 11));
  }
  const auto stored = store.load();
  for (const auto& [key, bytes] : stored->objects) EXPECT_EQ(bytes.find("plain"), std::string::npos) << key;

  happen(cluster::Cancel{cluster::JobId(1), "", false, true});
  is_open = false;
  wanted.shape.ranks = 1;
  wanted.shape.cpus = 0;
  const auto withheld = happen(cluster::Submit{{wanted}});
  EXPECT_EQ(ranks_in(withheld.delivery), 0U);
  EXPECT_EQ(turns.patience(), Duration::zero()) << "the state hears of it at once";
  const auto next = turns.turn({}, false);
  ASSERT_EQ(next.delivery.messages.size(), 1U) << "its agent may have heard of an earlier start";
  const auto end =
      std::get<wire::EndRanks>(*wire::decode_controller_message(next.delivery.messages[0].frame));
  cluster::RankStatus never{cluster::RankState::exited, 143, ""};
  never.told = cluster::Told::yes;
  happen(cluster::Reported{next.delivery.messages[0].node, {end.job, end.attempt, 0, never}});
  const cluster::Job& job = turns.state().jobs.at(cluster::JobId(2));
  EXPECT_NE(job.held.find("secret TOKEN : no key"), std::string::npos) << job.held;
  is_open = true;
  happen(cluster::Release{job.id});
  EXPECT_TRUE(turns.state().jobs.at(cluster::JobId(2)).placed());
}

TEST_F(OutboxTest, AReplicaGetsTheKeyOfItsServiceWithoutAskingForIt) {
  join(1, 1);
  turns.open_secrets_with(
      [](const std::string&, const cluster::Secret&) -> Result<std::string> { return std::string("key"); });
  cluster::Serve serve;
  serve.name = "chat";
  serve.replica = spec(1);
  serve.replica.user = "ada";
  serve.key = {.id = {cluster::SecretId::Of::service, "chat", std::string(cluster::engine_key_name)},
               .key = "k",
               .sealed = std::string(40, 's'),
               .bytes = 3};
  const auto started = happen(serve);
  ASSERT_EQ(started.delivery.messages.size(), 1U) << "in the turn in which it was asked for";
  const auto start =
      std::get<wire::StartRanks>(*wire::decode_controller_message(started.delivery.messages[0].frame));
  ASSERT_EQ(start.secrets.size(), 1U);
  EXPECT_EQ(start.secrets[0].name, cluster::engine_key_name);
  EXPECT_EQ(start.secrets[0].value, "key");
}

TEST_F(OutboxTest, TheRanksOfAGangHearTheSecretOfTheirAttemptAndNobodyElseDoes) {
  join(2, 1);
  turns.give_attempts([](const std::string&, const cluster::Job& job) {
    return "hidden-" + job.id.text() + "." + std::to_string(job.attempt);
  });
  cluster::JobSpec wanted = spec(2);
  wanted.shape.cpus = 1;
  wanted.env = {"TUTTI_WORLD_SECRET=of his own choice"};
  const auto started = happen(cluster::Submit{{wanted}});
  ASSERT_EQ(started.delivery.messages.size(), 2U) << "one for each node";
  for (const auto& message : started.delivery.messages) {
    const auto start = std::get<wire::StartRanks>(*wire::decode_controller_message(message.frame));
    ASSERT_FALSE(start.env.empty());
    EXPECT_EQ(start.env.back(), "TUTTI_WORLD_SECRET=hidden-1.0") << "the last one counts";
  }
  const auto stored = store.load();
  for (const auto& [key, bytes] : stored->objects) EXPECT_EQ(bytes.find("hidden"), std::string::npos) << key;

  happen(cluster::Cancel{cluster::JobId(1), "", false, true});
  const auto alone = happen(cluster::Submit{{spec(1)}});
  ASSERT_EQ(alone.delivery.messages.size(), 1U);
  const auto start =
      std::get<wire::StartRanks>(*wire::decode_controller_message(alone.delivery.messages[0].frame));
  for (const std::string& entry : start.env) EXPECT_FALSE(entry.starts_with("TUTTI_WORLD_SECRET"));
}

}  // namespace
}  // namespace tutti::driver
