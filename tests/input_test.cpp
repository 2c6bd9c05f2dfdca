// Input that nobody should send, from people, programs and agents: each is answered with a clear error, and
// after each the cluster still runs a job.
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <mutex>
#include <thread>

#include <gtest/gtest.h>

#include "control/wire/messages.hpp"
#include "net/http/client.hpp"
#include "support/cluster.hpp"
#include "support/connection.hpp"

namespace tutti {
namespace {

using nlohmann::json;
using support::Connection;
using support::eventually;
using support::has;
using support::PartsCluster;
using support::read_text;
using support::TestCluster;
using support::write_text;

std::string token(const TestCluster& cluster, const std::string& kind) {
  return read_text(cluster.home() + "/controller/" + kind + ".token").substr(0, 64);
}

net::Target target_of(const TestCluster& cluster) {
  const std::string address = read_text(cluster.home() + "/address");
  return *net::parse_target(address.substr(0, address.size() - 1));
}

void expect_works(const support::Cluster& cluster) {
  const auto run = cluster.run({}, "echo works");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.out, "[0] works\n");
}

// ---- people

class Refused : public testing::Test {
 protected:
  // The words are wrong usage, and the error says this.
  void expect(const std::vector<std::string>& words, const std::string& part) const {
    const auto done = cluster_.tutti(words);
    EXPECT_EQ(done.exit_code, 2) << words[1] << ": " << done.err;
    EXPECT_TRUE(has(done.err, part)) << done.err;
    EXPECT_EQ(done.out, "");
  }
  void TearDown() override {
    EXPECT_EQ(cluster_.json({"jobs", "--all"}), json::array()) << "none of it became a job";
    expect_works(cluster_);
  }

  TestCluster cluster_{1, 2};
};

TEST_F(Refused, AFileOfTenMegabytes) {
  write_text(cluster_.file("job.yaml"), "command: echo\nname: " + std::string(10 << 20, 'x') + "\n");
  expect({"submit", cluster_.file("job.yaml")}, "larger than 1 MiB");
}

TEST_F(Refused, AnUnknownKey) {
  write_text(cluster_.file("job.yaml"), "command: echo\nrnaks: 2\n");
  expect({"submit", cluster_.file("job.yaml")}, "did you mean 'ranks'?");
  write_text(cluster_.file("job.yaml"), "command: [echo\n");
  expect({"submit", cluster_.file("job.yaml")}, "job.yaml");
  write_text(cluster_.file("job.txt"), std::string(1000, '\0'));
  expect({"submit", cluster_.file("job.txt")}, "neither a YAML file nor a script");
}

TEST_F(Refused, WhatCanNeverFit) {
  expect({"run", "--gpus", "3", "--", "true"}, "can never run here");
  expect({"run", "--gpus", "1", "--gpu-model", "B300", "--", "true"}, "can never run here");
  expect({"run", "--nodes", "2", "--", "true"}, "can never run here");
  expect({"run", "--memory-per-rank", "1000T", "--", "true"}, "");
  expect({"run", "--queue", "nobody", "--", "true"}, "there is no queue 'nobody'");
  expect({"run", "--after", "12345", "--", "true"}, "there is no job 12345");
}

TEST_F(Refused, NumbersOutOfRange) {
  expect({"run", "--ranks", "-1", "--", "true"}, "ranks");
  expect({"run", "--ranks", "0", "--", "true"}, "ranks");
  expect({"run", "--ranks", "99999999999999999999", "--", "true"}, "ranks");
  expect({"run", "--ranks", "2147483648", "--", "true"}, "ranks");
  expect({"run", "--ranks", "two", "--", "true"}, "ranks");
  expect({"run", "--gpus-per-rank", "-0.5", "--", "true"}, "gpus-per-rank");
  expect({"run", "--gpus-per-rank", "1.5", "--", "true"}, "gpus-per-rank");
  expect({"run", "--gpus-per-rank", "1e9", "--", "true"}, "gpus-per-rank");
  expect({"run", "--time", "-5s", "--", "true"}, "time");
  expect({"run", "--time", "99999999999999d", "--", "true"}, "time");
  expect({"run", "--memory-per-rank", "-1G", "--", "true"}, "memory-per-rank");
  expect({"run", "--memory-per-rank", "99999999999999999999G", "--", "true"}, "memory-per-rank");
  expect({"run", "--priority", "100000", "--", "true"}, "priority");
  expect({"run", "--array", "0-99999999", "--", "true"}, "array");
  expect({"run", "--array", "5-1", "--", "true"}, "array");
  expect({"run", "--array", "0-3%0", "--", "true"}, "array");
  expect({"run", "--env", "=x", "--", "true"}, "env");
  expect({"run", "--", ""}, "no command");
  expect({"show", "-1"}, "");
  expect({"show", "18446744073709551616"}, "");
  expect({"cancel", "7"}, "there is no job 7");
  expect({"wait", "7"}, "there is no job 7");
  expect({"resume", "../n1"}, "there is no node '../n1'");
  expect({"drain", "n1/resume"}, "there is no node 'n1/resume'");
  expect({"show", "../nodes"}, "there is no job '../nodes'");
  expect({"cancel", "7/../8"}, "there is no job '7/../8'");
  expect({"resume", "n7"}, "there is no node 'n7'");
}

TEST(Input, ACommandThatDoesNotExist) {
  const TestCluster cluster;
  const auto missing = cluster.tutti({"run", "--", "/no/such/program"});
  EXPECT_EQ(missing.exit_code, 127);
  EXPECT_TRUE(has(missing.err, "cannot run '/no/such/program'")) << missing.err;
  const auto again = cluster.tutti({"run", "--restart-on-failure", "20", "--", "/no/such/program"});
  EXPECT_EQ(again.exit_code, 127);
  EXPECT_TRUE(has(again.err, "no restart would change that")) << again.err;
  const auto folder = cluster.tutti({"run", "--workdir", "/no/such/folder", "--", "true"});
  EXPECT_EQ(folder.exit_code, 126);
  EXPECT_TRUE(has(folder.err, "cannot enter the folder '/no/such/folder'")) << folder.err;
  expect_works(cluster);
}

TEST(Input, NoClusterAndNoToken) {
  const support::TempFolder empty;
  const auto none = support::run({support::tutti_program, "jobs"},
                                 {.env = {{"TUTTI_HOME", empty.path()}}, .stdout_to = ""});
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_TRUE(has(none.err, "`tutti up` starts one")) << none.err;
  TestCluster cluster;
  write_text(cluster.file("wrong.token"), std::string(64, '0') + "\n");
  cluster.env()["TUTTI_TOKEN_FILE"] = cluster.file("wrong.token");
  const auto wrong = cluster.tutti({"jobs"});
  EXPECT_NE(wrong.exit_code, 0);
  EXPECT_TRUE(has(wrong.err, "the token is wrong")) << wrong.err;
  cluster.env()["TUTTI_TOKEN_FILE"] = cluster.file("no.token");
  EXPECT_TRUE(has(cluster.tutti({"jobs"}).err, "no.token"));
  cluster.env()["TUTTI_TOKEN_FILE"] = "";
  expect_works(cluster);
}

// ---- programs that speak HTTP, or something else

TEST(Input, WhatIsNotHttp) {
  const TestCluster cluster;
  const auto port = target_of(cluster).port;
  const auto answer = [&](const std::string& bytes) {
    const Connection connection(port);
    connection.send(bytes);
    return connection.read();
  };
  std::string garbage;
  for (int at = 0; at < 5000; ++at) garbage += static_cast<char>(at * 131 % 251);
  EXPECT_TRUE(has(answer(garbage), " 400 "));
  EXPECT_TRUE(has(answer("GET nowhere HTTP/1.1\r\n\r\n"), " 400 "));
  EXPECT_TRUE(has(answer("GET / HTTP/1.1\r\nX: " + std::string(100'000, 'x') + "\r\n\r\n"), " 413 "));
  // The head says enough: no token, and with one, too large.
  EXPECT_TRUE(has(answer("POST /api/v1/jobs HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n"), " 401 "));
  EXPECT_TRUE(has(answer("POST /api/v1/jobs HTTP/1.1\r\nAuthorization: Bearer " + token(cluster, "admin") +
                         "\r\nContent-Length: 99999999999\r\n\r\n"),
                  " 413 "));
  EXPECT_TRUE(has(answer("POST /api/v1/jobs HTTP/1.1\r\nContent-Length: -5\r\n\r\n"), " 400 "));
  EXPECT_TRUE(has(answer("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + std::string(600, '\1')), " 400 "));
  EXPECT_TRUE(has(answer("GET /../../etc/passwd HTTP/1.1\r\nConnection: close\r\n\r\n"), " 404 "));
  expect_works(cluster);
}

TEST(Input, HalfARequestHoldsUpNobody) {
  const TestCluster cluster;
  std::vector<std::unique_ptr<Connection>> open;
  for (int at = 0; at < 200; ++at) {
    open.push_back(std::make_unique<Connection>(target_of(cluster).port));
    open.back()->send(at % 2 == 0 ? "POST /api/v1/jobs HT"
                                  : "POST /api/v1/jobs HTTP/1.1\r\nContent-Length: 100\r\n\r\n{");
  }
  expect_works(cluster);
}

TEST(Input, Tokens) {
  const TestCluster cluster;
  const net::Target target = target_of(cluster);
  const auto status = [&](const std::string& secret, const std::string& path) {
    net::Client client(target, secret);
    const auto response = client.request("GET", path);
    EXPECT_TRUE(response) << response.error().text();
    return response ? response->status : 0;
  };
  EXPECT_EQ(status("", "/api/v1/jobs"), 401);
  EXPECT_EQ(status(std::string(64, '0'), "/api/v1/jobs"), 401);
  EXPECT_EQ(status(token(cluster, "join"), "/api/v1/jobs"), 401) << "agents may join, not rule";
  EXPECT_EQ(status("", "/api/v1/health"), 200);
  EXPECT_EQ(status("", "/api/v1/openapi.json"), 200);
  EXPECT_EQ(status(token(cluster, "admin"), "/api/v1/jobs"), 200);
  EXPECT_TRUE(eventually([&] { return status("guess", "/api/v1/jobs") == 429; }));
  EXPECT_EQ(status(token(cluster, "admin"), "/api/v1/jobs"), 200) << "whoever knows the token is let in";
  expect_works(cluster);
}

TEST(Input, WhoAsksTooOftenIsToldWhenToComeAgain) {
  support::PartsOptions options;
  options.controller_flags = {"--requests-per-second", "5"};
  PartsCluster cluster(options);
  ASSERT_TRUE(cluster.start_agent("n1"));
  net::Client client(*net::parse_target(cluster.address()),
                     read_text(cluster.data() + "/admin.token").substr(0, 64));
  ASSERT_TRUE(eventually([&] { return client.request("GET", "/api/v1/status")->status == 429; }));
  std::string refused;
  ASSERT_TRUE(eventually([&] {
    const Connection connection(net::parse_target(cluster.address())->port);
    connection.send("GET /api/v1/status HTTP/1.1\r\nAuthorization: Bearer " +
                    read_text(cluster.data() + "/admin.token").substr(0, 64) +
                    "\r\nConnection: close\r\n\r\n");
    refused = connection.read();
    return has(refused, " 429 ");
  }));
  EXPECT_TRUE(has(refused, "Retry-After: 1\r\n")) << refused;
  EXPECT_TRUE(has(refused, "too many requests from this address")) << refused;
  EXPECT_EQ(client.request("GET", "/api/v1/health")->status, 200) << "the connection lives on";
  EXPECT_TRUE(eventually([&] { return client.request("GET", "/api/v1/status")->status == 200; }))
      << "it passes by itself";
}

TEST(Input, BodiesThatAreNotWhatTheApiExpects) {
  const TestCluster cluster;
  net::Client client(target_of(cluster), token(cluster, "admin"));
  const auto post = [&](const std::string& path, const std::string& body) {
    const auto response = client.request("POST", "/api/v1/" + path, body);
    EXPECT_TRUE(response) << body.substr(0, 200) << ": " << response.error().text();
    if (!response) return 0;
    EXPECT_TRUE(has(response->body, "\"message\"")) << response->body;
    return response->status;
  };
  const auto submit = [&](const std::string& shape) {
    return post("jobs", R"({"jobs":[{"command":["true"],"shape":)" + shape + "}]}");
  };
  EXPECT_EQ(post("jobs", ""), 400);
  EXPECT_EQ(post("jobs", "{"), 400);
  EXPECT_EQ(post("jobs", "[]"), 400);
  EXPECT_EQ(post("jobs", std::string(100'000, '[')), 400);
  EXPECT_EQ(post("jobs", R"({"jobs":[]})"), 400);
  EXPECT_EQ(post("jobs", R"({"jobs":[{"command":[]}]})"), 400);
  EXPECT_EQ(post("jobs", R"({"jobs":[{"command":["true"],"nonsense":1}]})"), 400);
  EXPECT_EQ(post("jobs", R"({"jobs":[{"command":["true"],"command":["false"]}]})"), 400);
  EXPECT_EQ(client.request("GET", "/api/v1/jobs/1/logs?rank=4294967296")->status, 400);
  EXPECT_EQ(post("explain", ""), 400);
  EXPECT_EQ(post("explain", R"({"jobs":[]})"), 400);
  EXPECT_EQ(post("explain", R"({"jobs":[{"command":["true"],"queue":"nobody","shape":{"ranks":1}}]})"), 400);
  EXPECT_EQ(client.request("GET", "/api/v1/jobs/7/explain")->status, 404);
  const auto put_queue = [&](const std::string& name, const std::string& body) {
    return client.request("PUT", "/api/v1/queues/" + name, body)->status;
  };
  EXPECT_EQ(put_queue("a", "["), 400);
  EXPECT_EQ(put_queue("a", R"({"limit":1})"), 400);
  EXPECT_EQ(put_queue("a", R"({"limit_gpus":-7})"), 400);
  EXPECT_EQ(put_queue("a", R"({"guarantee_gpus":1e30})"), 400);
  EXPECT_EQ(put_queue("a", R"({"weight":"NaN"})"), 400);
  EXPECT_EQ(put_queue(std::string(101, 'a'), "{}"), 400);
  EXPECT_EQ(put_queue("a%2F%2Fb", "{}"), 400);
  EXPECT_EQ(put_queue("a%00b", "{}"), 400);
  EXPECT_EQ(put_queue("a/b", "{}"), 404) << "a name is one part of the path";
  EXPECT_EQ(client.request("DELETE", "/api/v1/queues/a")->status, 400);
  EXPECT_EQ(submit(R"({"ranks":-1})"), 400);
  EXPECT_EQ(submit(R"({"ranks":0})"), 400);
  EXPECT_EQ(submit(R"({"ranks":2147483647})"), 400);
  EXPECT_EQ(submit(R"({"ranks":1,"gpu_share":-500})"), 400);
  EXPECT_EQ(submit(R"({"ranks":1,"gpu_share":1500})"), 400);
  EXPECT_EQ(submit(R"({"ranks":1,"memory_bytes":"-1"})"), 400);
  EXPECT_EQ(submit(R"({"ranks":1,"cpus":-3})"), 400);
  EXPECT_EQ(submit(R"({"ranks":1,"nodes":-3})"), 400);
  // Only the first of several is fine.
  EXPECT_EQ(post("jobs", R"({"jobs":[{"command":["true"],"shape":{"ranks":1}},)"
                         R"({"command":["true"],"shape":{"ranks":-7}}]})"),
            400);
  EXPECT_EQ(post("jobs", R"({"jobs":[{"command":["true"],"shape":{"ranks":1}},)"
                         R"({"command":["true"],"queue":"nobody","shape":{"ranks":1}}]})"),
            400);
  EXPECT_EQ(post("jobs", R"({"jobs":[{"command":["true"],"shape":{"ranks":1},)"
                         R"("array":{"count":10000,"limit":-1}}]})"),
            400);
  EXPECT_EQ(post("jobs", R"({"jobs":[{"command":["true"],"shape":{"ranks":1},)"
                         R"("array":{"count":10}}],"indices":[3]})"),
            400);
  EXPECT_EQ(post("nodes/n1/drain", "nonsense"), 400);
  EXPECT_EQ(post("nodes/..%2Fn1/resume", ""), 404);
  EXPECT_EQ(post("nodes/n7/resume", ""), 404);
  EXPECT_EQ(post("jobs/..%2F1/cancel", ""), 404);
  EXPECT_EQ(post("status/more", ""), 404);
  EXPECT_EQ(post("blobs/missing", "{}"), 400);
  EXPECT_EQ(cluster.json({"jobs", "--all"}), json::array());
  expect_works(cluster);
}

// ---- agents

// Speaks as an agent does, and says what it is told to.
class FakeAgent {
 public:
  FakeAgent(const net::Target& target, const std::string& secret) : thread_([this] { loop_.run(); }) {
    loop_.post([this, target, secret] {
      heartbeat_ = loop_.every(cluster::heartbeat_every, [this] {
        if (greeted_) send(wire::Heartbeat{});
      });
      net::dial(loop_, target, "/api/v1/agent", secret,
                [this](Result<std::shared_ptr<net::Socket>> socket) { dialled(std::move(socket)); });
    });
    EXPECT_TRUE(eventually([this] {
      const std::lock_guard lock(mutex_);
      return socket_ != nullptr || closed_;
    }));
  }
  FakeAgent(const FakeAgent&) = delete;
  FakeAgent& operator=(const FakeAgent&) = delete;
  ~FakeAgent() {
    loop_.post([this] {
      heartbeat_.reset();
      loop_.stop();
    });
    thread_.join();
  }

  void send(const std::string& frame) {
    const std::lock_guard lock(mutex_);
    if (socket_) socket_->send(frame);
  }
  void send(const wire::AgentMessage& message) { send(wire::encode(message)); }
  void hello(const std::string& name) {
    cluster::Inventory inventory;
    inventory.devices.push_back({"FAKE", gib(80), "", -1});
    inventory.cpus = 4;
    inventory.memory = gib(8);
    send(cluster::Hello{name, "", "127.0.0.1", 1, inventory, {}});
    greeted_ = true;
  }
  void report(std::uint64_t job, std::int32_t attempt, std::int32_t rank, cluster::RankStatus status) {
    send(wire::RankReports{{{cluster::JobId(job), attempt, rank, std::move(status)}}});
  }

  bool closed() {
    const std::lock_guard lock(mutex_);
    return closed_;
  }
  std::string why() {
    const std::lock_guard lock(mutex_);
    return why_;
  }
  // Has it been asked to start this attempt?
  bool started(std::uint64_t job, std::int32_t attempt) {
    const std::lock_guard lock(mutex_);
    return std::any_of(frames_.begin(), frames_.end(), [&](const std::string& frame) {
      const auto message = wire::decode_controller_message(frame);
      const auto* start = message ? std::get_if<wire::StartRanks>(&*message) : nullptr;
      return start != nullptr && start->job.number() == job && start->attempt == attempt;
    });
  }

 private:
  void dialled(Result<std::shared_ptr<net::Socket>> socket) {
    const std::lock_guard lock(mutex_);
    if (!socket) {
      closed_ = true;
      why_ = socket.error().text();
      return;
    }
    socket_ = *socket;
    socket_->on_message = [this](std::string frame) {
      const std::lock_guard inner(mutex_);
      frames_.push_back(std::move(frame));
    };
    socket_->on_close = [this](const std::string& why) {
      const std::lock_guard inner(mutex_);
      closed_ = true;
      why_ = why;
    };
  }

  net::Loop loop_;
  std::mutex mutex_;
  std::shared_ptr<net::Socket> socket_;
  std::vector<std::string> frames_;
  std::string why_;
  bool closed_ = false;
  std::atomic<bool> greeted_ = false;
  std::shared_ptr<net::Loop::Handle> heartbeat_;
  std::thread thread_;
};

TEST(Input, AgentsThatSpeakGarbageAreDisconnected) {
  const TestCluster cluster;
  const net::Target target = target_of(cluster);
  const std::string join = token(cluster, "join");
  const auto disconnects = [&](const std::string& frame) {
    FakeAgent agent(target, join);
    agent.send(frame);
    return eventually([&] { return agent.closed(); }, 20s);
  };
  EXPECT_TRUE(disconnects("garbage"));
  EXPECT_TRUE(disconnects(""));
  EXPECT_TRUE(disconnects(std::string(100'000, '\xff')));
  EXPECT_TRUE(disconnects(std::string(net::frame_bytes_max + 1, '\1')));
  EXPECT_TRUE(disconnects(wire::encode(wire::AgentMessage(wire::Heartbeat{})))) << "no Hello came first";
  for (const std::string name : {"", ".", "..", "../../etc", "a/b", "-rf", "a b", "n\n1", "n\xff"}) {
    EXPECT_TRUE(disconnects(wire::encode(wire::AgentMessage(cluster::Hello{name, "", "", 1, {}, {}}))))
        << name;
  }
  EXPECT_EQ(cluster.json({"nodes"}).size(), 1U);
  expect_works(cluster);
}

TEST(Input, AnAgentNeedsTheToken) {
  const TestCluster cluster;
  for (const std::string& secret : {std::string(), std::string(64, '0')}) {
    FakeAgent agent(target_of(cluster), secret);
    EXPECT_TRUE(agent.closed());
    EXPECT_TRUE(has(agent.why(), "refuses the token")) << agent.why();
  }
  expect_works(cluster);
}

TEST(Input, ReportsReplayedReorderedAndInvented) {
  using State = cluster::RankState;
  const TestCluster cluster;
  const std::string gate = cluster.file("gate");
  const std::string other = cluster.submit({}, "while [ ! -e '" + gate + "' ]; do sleep 0.02; done");
  ASSERT_TRUE(cluster.becomes(other, "running"));
  FakeAgent agent(target_of(cluster), token(cluster, "join"));
  agent.hello("fake");
  ASSERT_TRUE(cluster.node_becomes("fake", "ready"));
  const std::string id = cluster.submit({"--gpus", "1", "--gpu-model", "FAKE"}, "true");
  const std::uint64_t job = std::stoull(id);
  ASSERT_TRUE(eventually([&] { return agent.started(job, 0); }));
  // About what is not its own, or is not there.
  agent.report(std::stoull(other), 0, 0, {State::exited, 9, "invented", false});
  agent.report(std::stoull(other), 0, 0, {State::exited, 0, "invented", true});
  agent.report(777, 0, 0, {State::started, 0, "", false});
  agent.report(job, 5, 0, {State::exited, 9, "", false});
  agent.report(job, -1, 0, {State::exited, 9, "", false});
  agent.report(job, 0, 1, {State::exited, 9, "", false});
  agent.report(job, 0, -1, {State::exited, 9, "", false});
  agent.report(job, 0, 0, {State::started, 0, "", false});
  ASSERT_TRUE(cluster.becomes(id, "running"));
  agent.report(job, 0, 0, {State::assigned, 0, "", false});
  agent.report(job, 0, 0, {State::started, 0, "", false});
  agent.report(job, 0, 0, {State::exited, 0, "", false});
  agent.report(job, 0, 0, {State::exited, 9, "", false});
  agent.report(job, 0, 0, {State::started, 0, "", false});
  agent.report(job, 0, 0, {State::exited, 0, "", true});
  EXPECT_EQ(cluster.wait(id), 0);
  ASSERT_EQ(cluster.tutti({"drain", "fake"}).exit_code, 0) << "it would never run what it is given";
  expect_works(cluster);
  EXPECT_EQ(cluster.job(id)["attempt"], 0);
  EXPECT_EQ(cluster.job(id)["exit_code"], 0);
  EXPECT_EQ(cluster.state(other), "running");
  write_text(gate, "");
  EXPECT_EQ(cluster.wait(other), 0);
  EXPECT_EQ(cluster.job(other)["attempt"], 0);
}

// ---- how a controller may be reached

TEST(Input, AListenerForOthersNeedsTls) {
  // With an authority of the cluster it has it; a folder of an earlier version has none.
  const support::TempFolder folder;
  const std::string data = folder.path() + "/controller";
  ASSERT_EQ(support::run({support::tutti_program, "controller", "init", "--data", data}).exit_code, 0);
  std::filesystem::remove(data + "/authority.pem");
  for (const char* address : {"0.0.0.0:0", "[::]:0"}) {
    const auto refused = support::run(
        {support::tutti_program, "controller", "--data", data, "--listen", address}, {.timeout = 10s});
    EXPECT_EQ(refused.exit_code, 2) << address << refused.err;
    EXPECT_TRUE(has(refused.err, "--tls-certificate")) << refused.err;
    EXPECT_TRUE(has(refused.err, "tutti controller init")) << refused.err;
  }
  const auto half = support::run({support::tutti_program, "controller", "--data", data, "--listen",
                                  "0.0.0.0:0", "--tls-certificate", "/etc/hostname"},
                                 {.timeout = 10s});
  EXPECT_EQ(half.exit_code, 2) << half.err;
  const auto open = std::filesystem::status(data + "/admin.token").permissions();
  EXPECT_EQ(open & std::filesystem::perms(077), std::filesystem::perms::none) << "tokens are for their owner";
}

TEST(Input, Tls) {
  const support::TempFolder folder;
  const std::string key = folder.path() + "/key.pem";
  const std::string certificate = folder.path() + "/certificate.pem";
  const auto made = support::run({"openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
                                  "-subj", "/CN=tutti", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout",
                                  key, "-out", certificate});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  support::PartsOptions options;
  options.controller_flags = {"--tls-certificate", certificate, "--tls-key", key};
  options.agent_flags = {"--ca-file", certificate};
  PartsCluster cluster(options);
  cluster.env()["TUTTI_CA_FILE"] = certificate;
  // As a folder of an earlier version is: its agents know the join token.
  cluster.kill_controller();
  std::filesystem::remove(cluster.data() + "/authority.pem");
  ASSERT_TRUE(cluster.start_controller()) << read_text(cluster.file("controller.err"));
  ASSERT_TRUE(cluster.start_agent("n1")) << read_text(cluster.file("agent-n1.err"));
  expect_works(cluster);
  const std::string work = cluster.file("work");
  std::filesystem::create_directories(work);
  write_text(work + "/data", "shipped\n");
  EXPECT_EQ(cluster.run({"--sync", work, "--no-prefix"}, "cat data").out, "shipped\n");
  cluster.env()["TUTTI_CA_FILE"] = "";
  const auto plain = cluster.tutti({"jobs"});
  EXPECT_EQ(plain.exit_code, 1);
  EXPECT_TRUE(has(plain.err, "TUTTI_CA_FILE") || has(plain.err, "TLS")) << plain.err;
  ASSERT_EQ(support::run({"openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
                          "/CN=other", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key + ".other",
                          "-out", certificate + ".other"})
                .exit_code,
            0);
  cluster.env()["TUTTI_CA_FILE"] = certificate + ".other";
  const auto other = cluster.tutti({"jobs"});
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_TRUE(has(other.err, "its certificate is of no authority in " + certificate + ".other")) << other.err;
  EXPECT_FALSE(has(other.err, "tutti up")) << "it runs\n" << other.err;
  cluster.env()["TUTTI_CA_FILE"] = certificate;
  expect_works(cluster);
}

// An agent goes on trying, so that its log is the place where the reason is looked for.
TEST(Input, AnAgentThatDoesNotSpeakAsItsControllerSaysWhatToDo) {
  const support::TempFolder folder;
  const std::string key = folder.path() + "/key.pem";
  const std::string certificate = folder.path() + "/certificate.pem";
  ASSERT_EQ(support::run({"openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
                          "/CN=tutti", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out",
                          certificate})
                .exit_code,
            0);
  for (const bool tls : {true, false}) {
    support::PartsOptions options;
    if (tls) options.controller_flags = {"--tls-certificate", certificate, "--tls-key", key};
    const PartsCluster cluster(options);
    std::vector<std::string> words{support::tutti_program,
                                   "agent",
                                   "--isolation",
                                   "none",
                                   "--controller",
                                   cluster.address(),
                                   "--join-token-file",
                                   cluster.data() + "/join.token",
                                   "--name",
                                   "n1",
                                   "--data",
                                   cluster.file("agent")};
    if (!tls) words.insert(words.end(), {"--ca-file", certificate});
    support::Process agent(words, cluster.file("agent-log"));
    const std::string wanted = tls ? "if it speaks TLS, TUTTI_CA_FILE (or --ca-file) must name its"
                                   : "if it does not speak TLS, TUTTI_CA_FILE (or --ca-file) must not be set";
    EXPECT_TRUE(eventually([&] { return has(read_text(cluster.file("agent-log.err")), wanted); }))
        << read_text(cluster.file("agent-log.err"));
    agent.signal(SIGTERM);
    agent.wait();
  }
}

}  // namespace
}  // namespace tutti
