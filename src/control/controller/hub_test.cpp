#include "control/controller/hub.hpp"

#include <algorithm>
#include <atomic>
#include <future>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "control/controller/turn_events.hpp"
#include "control/store/memory/memory_store.hpp"

namespace tutti::controller {
namespace {

const Identity root{.caller = people::root_caller(), .credential = people::root_credential};

// An agent's connection whose other side is the test.
class HubSocket final : public net::Socket {
 public:
  using net::Socket::send;
  void send(net::Text frame) override {
    sent.push_back(std::move(frame));
    if (on_send) on_send(*sent.back());
  }
  void send_later(std::string frame) override { send(std::move(frame)); }
  std::size_t later_bytes() const override { return 0; }
  bool has_unread() const override { return unread; }
  std::uint64_t reads() const override { return pieces; }
  void become_known() override { is_known = true; }
  void close() override {}

  std::vector<net::Text> sent;
  std::function<void(const std::string&)> on_send;
  bool is_known = false;
  bool unread = false;
  std::uint64_t pieces = 0;
};

class HubStream final : public net::Stream {
 public:
  using net::Stream::write;
  void write(net::Text chunk, std::function<void()>) override {
    texts.push_back(std::move(chunk));
    if (on_write) on_write(*texts.back());
  }
  void close() override { closed = true; }
  void cut() override {}

  bool closed = false;
  std::vector<net::Text> texts;
  std::function<void(const std::string&)> on_write;
};

class HubExchange final : public net::Exchange {
 public:
  const net::Request& request() const override { return request_; }
  void answer(net::Response response) override { status = response.status; }
  std::shared_ptr<net::Stream> stream(std::function<void()> on_close) override {
    status = 200;
    leave = std::move(on_close);
    return stream_;
  }
  void upgrade(std::function<void(std::shared_ptr<net::Socket>)>) override {}
  HubStream& written() { return *stream_; }
  void come_from(const std::string& address) { request_.remote = address; }

  int status = 0;
  std::function<void()> leave;

 private:
  net::Request request_;
  std::shared_ptr<HubStream> stream_ = std::make_shared<HubStream>();
};

struct HubTest : testing::Test {
  void SetUp() override { ASSERT_TRUE(core.start().ok()); }

  // So many nodes.
  static std::vector<std::shared_ptr<HubSocket>> say_hello(Hub& hub, int count) {
    std::vector<std::shared_ptr<HubSocket>> agents;
    for (int at = 0; at < count; ++at) {
      agents.push_back(std::make_shared<HubSocket>());
      hub.add_agent(agents.back(), "10.0.0.1");
      cluster::Hello hello;
      hello.node = "n" + std::to_string(at);
      agents.back()->on_message(wire::encode(wire::AgentMessage(hello)));
    }
    return agents;
  }
  // It is asked as often as it will be, for so long.
  void look_for(Hub& hub, Duration time) {
    for (const Instant end = now.load() + time; now.load() < end; now = now.load() + driver::awake_every)
      hub.is_awake();
  }

  store::MemoryStore store;
  net::Loop loop;
  Core core{store, [](driver::Delivery) {}};
  std::atomic<Instant> now{Instant(1h)};
};

// ---- who is silent

TEST_F(HubTest, WhereManyAreNotReadNobodyIsSilent) {
  Hub hub(loop, core, [this] { return now.load(); });
  const auto agents = say_hello(hub, 30);
  EXPECT_TRUE(hub.is_awake());
  for (int at = 0; at < 4; ++at) agents[static_cast<std::size_t>(at)]->unread = true;
  EXPECT_TRUE(hub.is_awake()) << "they were heard a moment ago";
  look_for(hub, 2 * cluster::heartbeat_every);
  EXPECT_FALSE(hub.is_awake()) << "they have spoken, and were not heard";
  agents[0]->on_message(wire::encode(wire::AgentMessage(wire::Heartbeat{})));
  EXPECT_TRUE(hub.is_awake()) << "a tenth of them, and no more";
  for (const auto& agent : agents) agent->unread = false;
  look_for(hub, 10 * cluster::lease);
  EXPECT_TRUE(hub.is_awake()) << "nothing has come of it: it is silent";
}

// Else whoever may join could keep the controller from missing anybody, with bytes that cannot be read.
TEST_F(HubTest, OneThatIsNotReadExcusesNobodyElse) {
  Hub hub(loop, core, [this] { return now.load(); });
  const auto agents = say_hello(hub, 3);
  for (int at = 0; at < 2; ++at) agents[static_cast<std::size_t>(at)]->unread = true;
  for (int second = 0; second < 60; ++second) {
    look_for(hub, 1s);
    EXPECT_TRUE(hub.is_awake());
  }
}

TEST_F(HubTest, ALoopThatIsLateHasNotHeardWhoeverIsNotRead) {
  Hub hub(loop, core, [this] { return now.load(); });
  const auto agents = say_hello(hub, 1);
  EXPECT_TRUE(hub.is_awake());
  agents[0]->unread = true;
  now = now.load() + 2 * cluster::heartbeat_every;
  EXPECT_FALSE(hub.is_awake());
  now = now.load() + driver::awake_every;
  EXPECT_TRUE(hub.is_awake()) << "it was there to read it since";
}

// Nor with messages that never end.
TEST_F(HubTest, MessagesThatComeInPiecesDoNotMakeTheControllerDeaf) {
  Hub hub(loop, core, [this] { return now.load(); });
  const auto agents = say_hello(hub, 3);
  for (const auto& agent : agents) agent->unread = true;
  for (int piece = 0; piece < 10; ++piece) {
    for (const auto& agent : agents) ++agent->pieces;
    look_for(hub, cluster::heartbeat_every);
    EXPECT_TRUE(hub.is_awake()) << "a piece was read, and there are more";
  }
  look_for(hub, 2 * cluster::heartbeat_every);
  EXPECT_FALSE(hub.is_awake()) << "nothing was read of what has come";
}

// ---- who is known

TEST_F(HubTest, AnAgentIsKnownByItsHelloAndByNothingElse) {
  Hub hub(loop, core);
  const auto stranger = std::make_shared<HubSocket>();
  hub.add_agent(stranger, "10.0.0.1");
  stranger->on_message("what it has said");
  stranger->on_message(wire::encode(wire::AgentMessage(wire::Heartbeat{})));
  EXPECT_FALSE(stranger->is_known);
  const auto agent = std::make_shared<HubSocket>();
  hub.add_agent(agent, "10.0.0.2");
  cluster::Hello hello;
  hello.node = "n1";
  agent->on_message(wire::encode(wire::AgentMessage(hello)));
  EXPECT_TRUE(agent->is_known);
}

// Whoever has taken a node, or knows the join token of the folder, tries what else it could be.
TEST_F(HubTest, WhoeverSaysToBeAnotherNodeIsInTheAuditLog) {
  Hub hub(loop, core);
  hub.protect([](const std::string& node) { return node == "n2"; });
  const auto says = [&](const std::string& remote, Papers papers) {
    const auto socket = std::make_shared<HubSocket>();
    hub.add_agent(socket, remote, std::move(papers));
    cluster::Hello hello;
    hello.node = "n2";
    socket->on_message(wire::encode(wire::AgentMessage(hello)));
  };
  says("10.0.0.1", {.node = "n1", .key = "k"});
  says("10.0.0.2", {});
  std::promise<std::string> told;
  core.ask([&](const cluster::State& state, const auto&) {
    std::string lines;
    for (const auto& [first, text] : state.audit.lines) lines += text;
    told.set_value(lines);
  });
  const std::string lines = told.get_future().get();
  for (const char* part :
       {R"("who":"node n1","from":"10.0.0.1","verb":"connect","object":"node n2")",
        "it has the certificate of node n1 and says that it is n2",
        R"("from":"10.0.0.2","verb":"connect","object":"node n2")", "has a certificate, and it shows none"})
    EXPECT_NE(lines.find(part), std::string::npos) << part << " is not in " << lines;
  core.stop();
}

// ---- readers

TEST_F(HubTest, ReadersHearEveryFiveSecondsThatTheControllerIsThere) {
  // Each look at the clock finds it later, so that nobody has to wait for that.
  std::vector<Instant> told;
  Instant looked = now;
  Hub hub(loop, core, [this, &looked] { return looked = now.exchange(now.load() + 1s); });
  HubExchange exchange;
  exchange.written().on_write = [&](const std::string& text) {
    if (text == event_text("alive", "{}")) told.push_back(looked);
    if (told.size() == 2) loop.stop();
  };
  hub.add_log_reader(exchange, {cluster::JobId(1), -1, true, 0}, root);
  loop.run();
  core.stop();
  EXPECT_GE(told[1] - told[0], 5s);
  EXPECT_LT(told[1] - told[0], 20s);
}

TEST_F(HubTest, OfAGangsNodesThoseAreAskedForLogsThatHaveItsRanks) {
  Hub hub(loop, core);
  std::vector<wire::ReadLogs> asked;
  std::vector<std::shared_ptr<HubSocket>> agents;
  for (const std::string node : {"n1", "n2"}) {
    agents.push_back(std::make_shared<HubSocket>());
    agents.back()->on_send = [&](const std::string& frame) {
      const auto message = wire::decode_controller_message(frame);
      const auto* read = message ? std::get_if<wire::ReadLogs>(&*message) : nullptr;
      if (read == nullptr) return;
      asked.push_back(*read);
      if (asked.size() == 3) loop.stop();
    };
    hub.add_agent(agents.back(), "10.0.0.1");
    cluster::Hello hello;
    hello.node = node;
    hello.inventory.cpus = 2;
    agents.back()->on_message(wire::encode(wire::AgentMessage(hello)));
  }
  cluster::JobSpec spec;
  spec.command = {"true"};
  spec.shape = {.ranks = 4, .cpus = 1};
  std::promise<void> submitted;
  core.happen(cluster::Submit{{spec}}, [&](const auto& done) {
    EXPECT_TRUE(done.ok());
    submitted.set_value();
  });
  submitted.get_future().wait();
  HubExchange all;
  HubExchange one;
  hub.add_log_reader(all, {cluster::JobId(1), -1, true, 0}, root);
  hub.add_log_reader(one, {cluster::JobId(1), 3, true, 7}, root);
  loop.run();
  core.stop();
  ASSERT_EQ(asked.size(), 3U) << "both for all of it, and the one that has it for the last rank";
  EXPECT_EQ(asked[0].stream, asked[1].stream);
  EXPECT_EQ(asked[2].rank, 3);
  EXPECT_EQ(asked[2].tail_lines, 7);
  for (const wire::ReadLogs& read : asked) {
    EXPECT_EQ(read.attempt, 0);
    EXPECT_EQ(read.ranks, 0) << "none has run yet";
  }
  ASSERT_FALSE(one.written().texts.empty());
  EXPECT_NE(one.written().texts[0]->find("event: job"), std::string::npos);
}

TEST_F(HubTest, ReadersHearOfTheirJobAloneUntilTheyLeave) {
  Hub hub(loop, core);
  constexpr std::int32_t next_attempt = 5;
  std::vector<std::uint64_t> asked_for;
  const auto agent = std::make_shared<HubSocket>();
  agent->on_send = [&](const std::string& frame) {
    const auto message = wire::decode_controller_message(frame);
    const auto* read = message ? std::get_if<wire::ReadLogs>(&*message) : nullptr;
    if (read != nullptr && read->attempt == next_attempt) asked_for.push_back(read->stream);
  };
  hub.add_agent(agent, "10.0.0.1");
  cluster::Hello hello;
  hello.node = "n1";
  hello.inventory.cpus = 2;
  agent->on_message(wire::encode(wire::AgentMessage(hello)));
  cluster::JobSpec spec;
  spec.command = {"true"};
  spec.shape = {.cpus = 1};
  for (int job = 0; job < 2; ++job) {
    std::promise<void> submitted;
    core.happen(cluster::Submit{{spec}}, [&](const auto& done) {
      EXPECT_TRUE(done.ok());
      submitted.set_value();
    });
    submitted.get_future().wait();
  }
  std::vector<std::unique_ptr<HubExchange>> readers;
  std::size_t begun = 0;
  for (const unsigned job : {1U, 1U, 2U}) {
    readers.push_back(std::make_unique<HubExchange>());
    HubStream& stream = readers.back()->written();
    stream.on_write = [&](const std::string& text) {
      if (text.starts_with("event: job") && ++begun == 3) loop.stop();
    };
    hub.add_log_reader(*readers.back(), {cluster::JobId(job), -1, true, 0}, root);
  }
  loop.run();
  for (const auto& reader : readers) reader->written().texts.clear();
  const auto change = [&hub](std::uint64_t job) {
    driver::Delivery delivery;
    delivery.messages.push_back({"n1", "start", cluster::JobId(job), next_attempt, true});
    delivery.jobs.push_back({cluster::JobId(job), false, "{}"});
    hub.deliver(std::move(delivery));
  };
  const auto heard = [&readers] {
    std::vector<std::size_t> counts;
    for (const auto& reader : readers) counts.push_back(reader->written().texts.size());
    return counts;
  };
  change(1);
  EXPECT_EQ(heard(), (std::vector<std::size_t>{1, 1, 0}));
  EXPECT_EQ(asked_for.size(), 2U) << "the logs of what starts, for each";
  readers[0]->leave();
  change(1);
  change(2);
  EXPECT_EQ(heard(), (std::vector<std::size_t>{1, 2, 1}));
  EXPECT_EQ(asked_for.size(), 3U) << "and once of each attempt";
  readers[1]->leave();
  readers[2]->leave();
  change(1);
  EXPECT_EQ(heard(), (std::vector<std::size_t>{1, 2, 1}));
  core.stop();
}

// ---- logs of nodes that are away

// A job with one rank on a node whose agent the test is. The loop has a thread of its own.
struct HubLogsTest : HubTest {
  void SetUp() override {
    HubTest::SetUp();
    thread = std::thread([this] { loop.run(); });
    connect();
    cluster::JobSpec spec;
    spec.command = {"true"};
    spec.shape = {.cpus = 1};
    happen(cluster::Submit{{spec}});
  }
  void TearDown() override {
    loop.stop();
    thread.join();
    core.stop();
  }

  void on_loop(const std::function<void()>& task) {
    std::promise<void> done;
    loop.post([&] {
      task();
      done.set_value();
    });
    done.get_future().wait();
  }
  void connect(const std::string& node = "n1") {
    on_loop([&] {
      agent = std::make_shared<HubSocket>();
      hub.add_agent(agent, "10.0.0.1");
      cluster::Hello hello;
      hello.node = node;
      hello.inventory.cpus = 1;
      agent->on_message(wire::encode(wire::AgentMessage(hello)));
    });
  }
  void disconnect() {
    on_loop([&] { agent->on_close("gone"); });
  }
  void happen(cluster::Event event) {
    std::promise<void> happened;
    core.happen(std::move(event), [&](const auto& done) {
      EXPECT_TRUE(done.ok());
      happened.set_value();
    });
    happened.get_future().wait();
  }
  // Its only rank has ended, and its user wanted it to.
  void end(bool could_be_started) {
    happen(cluster::Cancel{.job = cluster::JobId(1), .by = "ann"});
    cluster::RankReport report;
    report.job = cluster::JobId(1);
    report.status.state = cluster::RankState::exited;
    report.status.node_fault = !could_be_started;
    core.happen(cluster::Reported("n1", report), nullptr);
    std::promise<bool> finished;
    core.ask([&](const cluster::State& state, const auto&) {
      finished.set_value(state.jobs.at(cluster::JobId(1)).finished());
    });
    ASSERT_TRUE(finished.get_future().get());
  }
  // Until it knows where the job stands.
  void read(HubExchange& exchange, bool follow) {
    std::promise<void> begun;
    on_loop([&] {
      exchange.written().on_write = [&](const std::string& text) {
        if (text.starts_with("event: job")) begun.set_value();
      };
      hub.add_log_reader(exchange, {cluster::JobId(1), -1, follow, 0}, root);
    });
    begun.get_future().wait();
    on_loop([&] { exchange.written().on_write = nullptr; });
  }
  bool tells(HubExchange& exchange, const std::string& words) {
    bool told = false;
    on_loop([&] {
      const auto& texts = exchange.written().texts;
      told = std::any_of(texts.begin(), texts.end(),
                         [&](const net::Text& text) { return text->find(words) != std::string::npos; });
    });
    return told;
  }
  bool is_closed(HubExchange& exchange) {
    bool closed = false;
    on_loop([&] { closed = exchange.written().closed; });
    return closed;
  }

  const std::string missing = "node n1 cannot be reached: its logs are missing here";
  Hub hub{loop, core};
  std::shared_ptr<HubSocket> agent;
  std::thread thread;
};

TEST_F(HubLogsTest, NothingIsMissingWhileAnAgentConnectsAgain) {
  HubExchange reader;
  read(reader, true);
  disconnect();
  HubExchange later;
  read(later, true);
  for (HubExchange* exchange : {&reader, &later}) EXPECT_FALSE(is_closed(*exchange));
  connect();
  for (HubExchange* exchange : {&reader, &later}) {
    EXPECT_FALSE(tells(*exchange, "missing"));
    EXPECT_TRUE(is_closed(*exchange)) << "who comes again has all of it";
  }
}

TEST_F(HubLogsTest, WhatHasNotComeWhenTheJobEndsIsMissing) {
  HubExchange reader;
  read(reader, true);
  disconnect();
  on_loop([&] {
    driver::Delivery delivery;
    delivery.jobs.push_back({cluster::JobId(1), true, "{}"});
    hub.deliver(std::move(delivery));
  });
  EXPECT_TRUE(tells(reader, missing));
  EXPECT_TRUE(tells(reader, "\"missing\":true"));
  EXPECT_TRUE(is_closed(reader));
}

TEST_F(HubLogsTest, WhatHasNotComeWhenTheNextAttemptBeginsIsMissing) {
  HubExchange reader;
  read(reader, true);
  disconnect();
  connect("n2");
  on_loop([&] {
    driver::Delivery delivery;
    delivery.messages.push_back({"n2", "start", cluster::JobId(1), 1, true});
    hub.deliver(std::move(delivery));
  });
  EXPECT_TRUE(tells(reader, missing));
  EXPECT_FALSE(is_closed(reader)) << "it follows the next one";
}

TEST_F(HubLogsTest, OfARankThatCouldNotBeStartedNothingIsMissing) {
  end(false);
  disconnect();
  HubExchange reader;
  read(reader, false);
  EXPECT_FALSE(tells(reader, "missing"));
  EXPECT_TRUE(is_closed(reader));
}

TEST_F(HubLogsTest, OfARankThatRanWhereNobodySpeaksTheyAreMissing) {
  end(true);
  disconnect();
  HubExchange reader;
  read(reader, false);
  EXPECT_TRUE(tells(reader, missing));
  EXPECT_TRUE(is_closed(reader));
}

TEST_F(HubTest, AReaderIsToldWhenTooMuchIsAskedFor) {
  Hub hub(loop, core);
  std::promise<void> gate;
  ASSERT_TRUE(core.look("10.0.0.9", [&gate](const auto&, const auto&) { gate.get_future().wait(); }));
  while (core.look("10.0.0.1", [](const auto&, const auto&) {})) continue;
  HubExchange reader;
  reader.come_from("10.0.0.1");
  hub.add_log_reader(reader, {cluster::JobId(1), -1, true, 0}, root);
  EXPECT_EQ(reader.status, 503);
  EXPECT_EQ(core.watchers.load(), 0) << "it does not count";
  HubExchange other;
  other.come_from("10.0.0.2");
  hub.add_log_reader(other, {cluster::JobId(1), -1, true, 0}, root);
  EXPECT_EQ(other.status, 200);
  gate.set_value();
  core.stop();
}

TEST_F(HubTest, WatchersShareOneTextOfAllEventsOfATurn) {
  Hub hub(loop, core);
  HubExchange one;
  HubExchange other;
  hub.add_watcher(one, root);
  hub.add_watcher(other, root);
  driver::Delivery delivery;
  delivery.jobs.push_back({cluster::JobId(1), false, R"({"id":"1"})"});
  delivery.nodes.push_back(R"({"name":"a"})");
  hub.deliver(std::move(delivery));
  hub.deliver({});
  ASSERT_EQ(one.written().texts.size(), 2U) << "hello, the turn; nothing of one without events";
  EXPECT_EQ(*one.written().texts[1],
            "event: job\ndata: {\"id\":\"1\"}\n\nevent: node\ndata: {\"name\":\"a\"}\n\n");
  EXPECT_EQ(one.written().texts[1], other.written().texts[1]) << "not a copy for each";
}

// Nothing comes of it when a token expires: it is looked for.
TEST_F(HubTest, WhoFollowsIsCutOffWhenHisTokenExpires) {
  Hub hub(loop, core);
  const people::Caller ada{.name = "ada", .until = Instant(5h)};
  HubExchange events;
  HubExchange logs;
  HubExchange for_ever;
  hub.add_watcher(events, {.caller = ada, .credential = {.token = "t1"}});
  hub.add_log_reader(logs, {cluster::JobId(1), -1, true, 0}, {.caller = ada, .credential = {.token = "t1"}});
  hub.add_watcher(for_ever, {.caller = people::root_caller(), .credential = people::root_credential});
  hub.shut_expired(Instant(5h) - 1s);
  EXPECT_FALSE(events.written().closed || logs.written().closed);
  hub.shut_expired(Instant(5h));
  EXPECT_TRUE(events.written().closed && logs.written().closed);
  EXPECT_FALSE(for_ever.written().closed);
  core.stop();  // it would answer a hub that is gone
}

TEST_F(HubTest, WatchersOfAQueueShareOneTextOfItsEvents) {
  Hub hub(loop, core);
  const auto of = [](const std::string& name, const std::vector<people::Grant>& grants) {
    return Identity{.caller = people::Caller{.name = name, .grants = grants}, .credential = {.token = name}};
  };
  HubExchange ada;
  HubExchange eve;
  HubExchange bob;
  HubExchange stranger;
  hub.add_watcher(ada, of("ada", {{people::Role::viewer, "a"}}));
  hub.add_watcher(eve, of("eve", {{people::Role::user, "a"}, {people::Role::user, "b"}}));
  hub.add_watcher(bob, of("bob", {}));
  hub.add_watcher(stranger, of("stranger", {}));
  driver::Delivery delivery;
  delivery.jobs.push_back({cluster::JobId(1), false, "1", "a", "ada"});
  delivery.jobs.push_back({cluster::JobId(2), false, "2", "b", "eve"});
  delivery.jobs.push_back({cluster::JobId(3), false, "3", "a/x", "bob"});
  hub.deliver(std::move(delivery));
  const auto told = [](HubExchange& who) {
    std::string all;
    for (std::size_t at = 1; at < who.written().texts.size(); ++at) all += *who.written().texts[at];
    return all;
  };
  EXPECT_EQ(told(ada), event_text("job", "1") + event_text("job", "3"));
  EXPECT_EQ(told(eve), event_text("job", "1") + event_text("job", "3") + event_text("job", "2"));
  EXPECT_EQ(told(bob), event_text("job", "3")) << "his own, without a role";
  EXPECT_EQ(told(stranger), "");
  EXPECT_EQ(ada.written().texts[1], eve.written().texts[1]) << "not a copy for each";
}

TEST_F(HubTest, WhoFollowsIsCutOffWhenHisTokenOrHisRolesChangeAndElseGoesOn) {
  Hub hub(loop, core);
  const auto of = [](const std::string& name) {
    return Identity{.caller = people::Caller{.name = name, .grants = {}},
                    .credential = {.token = "t-" + name}};
  };
  HubExchange ada;
  HubExchange bob;
  HubExchange reader;
  hub.add_watcher(ada, of("ada"));
  hub.add_watcher(bob, of("bob"));
  hub.add_log_reader(reader, {cluster::JobId(1), -1, true, 0}, of("bob"));
  driver::Delivery other;
  other.doors.persons.emplace_back("eve", std::nullopt);
  hub.deliver(std::move(other));
  EXPECT_FALSE(ada.written().closed);
  EXPECT_FALSE(reader.written().closed);
  driver::Delivery token;
  token.doors.tokens.emplace_back("t-ada", std::nullopt);
  hub.deliver(std::move(token));
  EXPECT_TRUE(ada.written().closed);
  EXPECT_FALSE(bob.written().closed);
  driver::Delivery roles;
  roles.doors.persons.emplace_back("bob", std::vector<people::Grant>());
  hub.deliver(std::move(roles));
  EXPECT_TRUE(bob.written().closed);
  EXPECT_TRUE(reader.written().closed);
  core.stop();  // it would answer a hub that is gone
}

TEST_F(HubTest, AnOfficeFollowsAndAFloodOfFollowersIsTold) {
  Hub hub(loop, core);
  const auto follow = [&hub](const std::string& address, bool logs) {
    auto exchange = std::make_unique<HubExchange>();
    exchange->come_from(address);
    if (logs) {
      hub.add_log_reader(*exchange, {cluster::JobId(1), -1, true, 0}, root);
    } else {
      hub.add_watcher(*exchange, root);
    }
    return exchange;
  };
  std::vector<std::unique_ptr<HubExchange>> open;
  for (std::size_t count = 0; count < audience_per_address_max; ++count) {
    open.push_back(follow("10.0.0.1", count % 2 == 0));
    ASSERT_EQ(open.back()->status, 200) << count;
  }
  EXPECT_EQ(follow("10.0.0.1", false)->status, 429);
  EXPECT_EQ(follow("10.0.0.1", true)->status, 429);
  EXPECT_EQ(core.watchers.load(), audience_per_address_max) << "who was refused does not count";
  for (std::size_t count = open.size(); count < audience_max; ++count)
    open.push_back(follow("10.0.1." + std::to_string(count % 8), false));
  EXPECT_EQ(open.back()->status, 200);
  EXPECT_EQ(follow("10.0.0.2", false)->status, 503);
  open.front()->leave();
  EXPECT_EQ(follow("10.0.0.2", false)->status, 200) << "one has made room";
}

// A program that may open few files: who follows from a node's address leaves some to its agent.
TEST_F(HubTest, WhereFewCanConnectThoseWhoFollowLeaveRoomForOthers) {
  Hub hub(loop, core);
  const AudienceLimits limits = audience_within(400, 200);
  EXPECT_EQ(limits.all, 200U);
  EXPECT_EQ(limits.per_address, 100U);
  EXPECT_EQ(limits.per_person, 50U);
  hub.limit_audience(limits);
  std::vector<std::unique_ptr<HubExchange>> open;
  const auto follow = [&](const std::string& name) {
    open.push_back(std::make_unique<HubExchange>());
    open.back()->come_from("10.0.0.1");
    hub.add_watcher(*open.back(), {.caller = people::Caller{.name = name}, .credential = {.token = name}});
    return open.back()->status;
  };
  for (std::size_t count = 0; count < limits.per_person; ++count) ASSERT_EQ(follow("eve"), 200);
  EXPECT_EQ(follow("eve"), 429);
  EXPECT_EQ(follow("ada"), 200);
  const AudienceLimits many = audience_within(net::connections_max, net::connections_per_address_max);
  EXPECT_EQ(many.all, audience_max);
  EXPECT_EQ(many.per_address, audience_per_address_max);
  EXPECT_EQ(many.per_person, audience_per_person_max);
}

TEST_F(HubTest, NobodyFollowsInPlaceOfAllOthersHoweverManyAddressesHeHas) {
  Hub hub(loop, core);
  std::vector<std::unique_ptr<HubExchange>> open;
  const auto follow = [&](const std::string& name) {
    open.push_back(std::make_unique<HubExchange>());
    open.back()->come_from("10.0." + std::to_string(open.size()) + ".1");
    hub.add_watcher(*open.back(), {.caller = people::Caller{.name = name}, .credential = {.token = name}});
    return open.back()->status;
  };
  for (std::size_t count = 0; count < audience_per_person_max; ++count) ASSERT_EQ(follow("eve"), 200);
  EXPECT_EQ(follow("eve"), 429);
  EXPECT_EQ(follow("ada"), 200);
  open.front()->leave();
  EXPECT_EQ(follow("eve"), 200);
}

}  // namespace
}  // namespace tutti::controller
