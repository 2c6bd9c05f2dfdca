// An agent that keeps the controller from reading it: nobody else is excused by that.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "control/controller/hub.hpp"
#include "control/store/memory/memory_store.hpp"
#include "net/http/server.hpp"

namespace tutti::controller {
namespace {

constexpr int opcode_binary = 2;
constexpr int opcode_ping = 9;
constexpr std::size_t short_frame_max = 125;
constexpr int pings_max = 80;  // more would be too many
constexpr int rounds_until_read = 500;

// A WebSocket that is written by hand, so that it need not be read.
class RawAgent {
 public:
  explicit RawAgent(std::uint16_t port) : descriptor_(::socket(AF_INET, SOCK_STREAM, 0)) {
    constexpr int little = 4096;
    EXPECT_EQ(::setsockopt(descriptor_, SOL_SOCKET, SO_RCVBUF, &little, sizeof little), 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(descriptor_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    write(
        "GET / HTTP/1.1\r\nHost: here\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n");
    std::string answer;
    char byte = 0;
    while (!answer.ends_with("\r\n\r\n") && ::recv(descriptor_, &byte, 1, 0) == 1) answer += byte;
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 101")) << answer;
  }
  RawAgent(const RawAgent&) = delete;
  RawAgent& operator=(const RawAgent&) = delete;
  ~RawAgent() { ::close(descriptor_); }

  void say_hello(const std::string& node) const {
    cluster::Hello hello;
    hello.node = node;
    send(opcode_binary, wire::encode(wire::AgentMessage(hello)));
  }
  void send(int opcode, const std::string& payload) const {
    ASSERT_LE(payload.size(), short_frame_max);
    const std::string frame{static_cast<char>(0x80 | opcode), static_cast<char>(0x80 | payload.size())};
    write(frame + std::string(4, '\0') + payload);  // a mask of zeros leaves it as it is
  }

 private:
  void write(const std::string& bytes) const {
    EXPECT_EQ(::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }

  const int descriptor_;
};

struct HubDeafTest : testing::Test {
  void SetUp() override {
    core.watchers = 1;
    ASSERT_TRUE(core.start().ok());
    hub.start();
    auto listening = net::Server::listen(loop, {}, [this](const auto& exchange) {
      exchange->upgrade([this](std::shared_ptr<net::Socket> socket) {
        hub.add_agent(socket, "127.0.0.1");
        sockets.push_back(std::move(socket));
      });
    });
    ASSERT_TRUE(listening.ok()) << listening.error().text();
    server = std::move(*listening);
    thread = std::thread([this] { loop.run(); });
  }
  void TearDown() override {
    loop.stop();
    if (thread.joinable()) thread.join();
    core.stop();
  }

  // Of the nodes, as they are told to those who watch.
  bool comes(const std::string& node, const std::string& state) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, std::chrono::seconds(20), [&] {
      return std::any_of(told.begin(), told.end(), [&](const std::string& text) {
        return text.find("\"" + node + "\"") != std::string::npos &&
               text.find("\"" + state + "\"") != std::string::npos;
      });
    });
  }
  bool is_lost(const std::string& node) {
    std::promise<bool> answer;
    core.ask([&](const cluster::State& state, const auto&) { answer.set_value(state.nodes.at(node).lost); });
    return answer.get_future().get();
  }

  void on_loop(const std::function<void()>& task) {
    std::promise<void> done;
    loop.post([&] {
      task();
      done.set_value();
    });
    done.get_future().wait();
  }
  // Something of the first one waits, and is not read however often the loop goes round.
  bool is_stuck() {
    std::uint64_t before = 0;
    bool is_stuck = false;
    for (int round = 0; round < rounds_until_read; ++round)
      on_loop([&] { before = sockets.front()->reads(); });
    for (int round = 0; round < rounds_until_read; ++round)
      on_loop([&] { is_stuck = sockets.front()->has_unread() && sockets.front()->reads() == before; });
    return is_stuck;
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::string> told;
  store::MemoryStore store;
  net::Loop loop;
  std::vector<std::shared_ptr<net::Socket>> sockets;  // on the loop
  Core core{store, [this](driver::Delivery delivery) {
              const std::lock_guard lock(mutex);
              for (std::string& node : delivery.nodes) told.push_back(std::move(node));
              changed.notify_all();
            }};
  Hub hub{loop, core};
  std::unique_ptr<net::Server> server;
  std::thread thread;
};

// Its answer to a ping waits behind a message that the other side does not take, and what comes behind the
// ping behind that.
TEST_F(HubDeafTest, AnAgentThatCannotBeReadHidesNoOtherThatDies) {
  const RawAgent stubborn(server->port());
  stubborn.say_hello("stubborn");
  ASSERT_TRUE(comes("stubborn", "ready"));
  on_loop([&] {
    driver::Delivery delivery;
    delivery.messages.push_back({"stubborn", std::string(15 << 20, 'x'), cluster::JobId(1), 0, false});
    hub.deliver(std::move(delivery));
  });
  int pings = 0;
  while (!is_stuck() && ++pings < pings_max) {
    stubborn.send(opcode_ping, "");
    stubborn.send(opcode_binary, wire::encode(wire::AgentMessage(wire::Heartbeat{})));
  }
  ASSERT_LT(pings, pings_max);
  const RawAgent dies(server->port());
  dies.say_hello("dies");
  ASSERT_TRUE(comes("dies", "ready"));
  EXPECT_TRUE(comes("dies", "lost"));
  EXPECT_FALSE(is_lost("stubborn")) << "it is there, and is not read";
}

}  // namespace
}  // namespace tutti::controller
