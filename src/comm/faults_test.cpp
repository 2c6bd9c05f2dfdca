// What goes wrong, made to happen: death, freeze, absence, disagreement, abort. Every other rank gets an
// error that names the culprit, within the deadline.
#include <fcntl.h>
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <future>
#include <map>

#include "comm/control.hpp"
#include "comm/fault.hpp"
#include "comm/links.hpp"
#include "comm/process.hpp"
#include "comm/ranks_test.hpp"

namespace tutti::comm {
namespace {

// What the ranks of a test tell it: lines in memory that all of them share.
class Board {
 public:
  Board() {
    void* const place =
        mmap(nullptr, sizeof(Content), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    content_ = new (place) Content{};
  }
  ~Board() { munmap(content_, sizeof(Content)); }
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  void write(int rank, const std::string& text) {
    std::strncpy(content_->lines[rank], text.c_str(), sizeof content_->lines[rank] - 1);
  }
  std::string read(int rank) const { return content_->lines[rank]; }
  std::atomic<int>& count() { return content_->count; }

 private:
  struct Content {
    std::atomic<int> count{0};
    char lines[16][1024] = {};
  };
  Content* content_;
};

void wait_until(const std::function<bool()>& condition) {
  const auto deadline = Clock::now() + std::chrono::seconds(60);
  while (!condition()) {
    ASSERT_LT(Clock::now(), deadline);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

Result<> add_up(Communicator& world, std::size_t count) {
  std::vector<float> data(count, 1.0F);
  return world.all_reduce(data.data(), data.data(), count, DataType::f32, Reduction::max).wait();
}

class Faults : public testing::TestWithParam<Transport> {
 protected:
  Meeting meet(int size, Duration deadline) {
    Meeting meeting(size, GetParam());
    meeting.options().deadline = deadline;
    return meeting;
  }
  Board board_;
};

INSTANTIATE_TEST_SUITE_P(Over, Faults, testing::Values(Transport::shm, Transport::tcp),
                         [](const auto& shape) { return shape.param == Transport::tcp ? "Tcp" : "Shm"; });

// Ranks that add up until something happens, and write down what.
RankBody busy(Board& board, std::size_t count) {
  return [&board, count](Communicator& world) {
    for (int round = 0;; ++round) {
      auto done = add_up(world, count);
      if (!done) {
        board.write(world.rank(), done.error().text());
        return;
      }
      if (round == 10) ++board.count();
    }
  };
}

TEST_P(Faults, AKilledRankIsNamedByAllOthers) {
  for (const std::size_t count : {16UL, 300'000UL}) {
    board_.count() = 0;
    Meeting meeting = meet(4, 60s);
    RankProcesses ranks(meeting, busy(board_, count));
    wait_until([&] { return board_.count() == 4; });
    kill(ranks.pid(2), SIGKILL);
    for (const int rank : {0, 1, 3}) {
      EXPECT_EQ(ranks.wait(rank), 0);
      EXPECT_NE(board_.read(rank).find("rank 2 on node "), std::string::npos) << board_.read(rank);
      EXPECT_NE(board_.read(rank).find(" died"), std::string::npos) << board_.read(rank);
    }
  }
}

TEST_P(Faults, TheDeathOfRankZeroIsNamedToo) {
  Meeting meeting = meet(3, 60s);
  RankProcesses ranks(meeting, busy(board_, 1000));
  wait_until([&] { return board_.count() == 3; });
  kill(ranks.pid(0), SIGKILL);
  for (const int rank : {1, 2}) {
    EXPECT_EQ(ranks.wait(rank), 0);
    EXPECT_NE(board_.read(rank).find("rank 0"), std::string::npos) << board_.read(rank);
    EXPECT_NE(board_.read(rank).find("died"), std::string::npos) << board_.read(rank);
  }
}

TEST_P(Faults, AFrozenRankIsNamedAfterTheDeadline) {
  Meeting meeting = meet(3, 2s);
  RankProcesses ranks(meeting, busy(board_, 1000));
  wait_until([&] { return board_.count() == 3; });
  kill(ranks.pid(1), SIGSTOP);
  for (const int rank : {0, 2}) {
    EXPECT_EQ(ranks.wait(rank), 0);
    const std::string text = board_.read(rank);
    EXPECT_NE(text.find("rank 1 on node "), std::string::npos) << text;
    EXPECT_NE(text.find("stopped (SIGSTOP)"), std::string::npos) << text;
  }
}

// Rank 0 does not come to what rank 2 waits in, because it waits for rank 1 itself.
TEST_P(Faults, ARankThatWaitsForAFrozenOneIsNotBlamed) {
  Meeting meeting = meet(3, 2s);
  RankProcesses ranks(meeting, [&](Communicator& world) {
    if (world.rank() == 1) raise(SIGSTOP);
    float value = 0;
    // Longer than the others' deadline: rank 2 is to ask first.
    auto done = world.rank() == 0 ? world.recv(&value, 1, DataType::f32, 1, 60s).wait() : add_up(world, 10);
    ASSERT_FALSE(done.ok());
    board_.write(world.rank(), done.error().text());
  });
  for (const int rank : {0, 2}) {
    EXPECT_EQ(ranks.wait(rank), 0);
    const std::string text = board_.read(rank);
    EXPECT_TRUE(text.starts_with("rank 1 on node ")) << text;
    EXPECT_NE(text.find(" does not answer in recv #1 "), std::string::npos) << text;
    EXPECT_NE(text.find("stopped (SIGSTOP)"), std::string::npos) << text;
  }
}

TEST_P(Faults, AFrozenRankZeroDoesNotHangTheOthers) {
  Meeting meeting = meet(3, 2s);
  RankProcesses ranks(meeting, busy(board_, 1000));
  wait_until([&] { return board_.count() == 3; });
  kill(ranks.pid(0), SIGSTOP);
  for (const int rank : {1, 2}) {
    EXPECT_EQ(ranks.wait(rank), 0);
    EXPECT_NE(board_.read(rank).find("rank 0"), std::string::npos) << board_.read(rank);
  }
}

TEST_P(Faults, ARankThatDoesNotComeIsNamedWithWhatItDoes) {
  Meeting meeting = meet(3, 2s);
  RankProcesses ranks(meeting, [&](Communicator& world) {
    EXPECT_TRUE(add_up(world, 10).ok());
    if (world.rank() == 2) {  // computes for ever, as a user's program would
      std::atomic<bool> stop{false};
      while (!stop) {}
    }
    auto done = add_up(world, 1 << 20);
    ASSERT_FALSE(done.ok());
    board_.write(world.rank(), done.error().text());
  });
  for (const int rank : {0, 1}) {
    EXPECT_EQ(ranks.wait(rank), 0);
    const std::string text = board_.read(rank);
    EXPECT_TRUE(text.starts_with("rank 2 on node ")) << text;
    EXPECT_NE(text.find(" never entered all_reduce #2 (4 MiB, group world); the others have waited "),
              std::string::npos)
        << text;
    EXPECT_NE(text.find("it is running, "), std::string::npos) << text;
    EXPECT_NE(text.find("% CPU"), std::string::npos) << text;
  }
}

TEST_P(Faults, ARankThatLeftIsNamed) {
  Meeting meeting = meet(3, 2s);
  run_threads(meeting, [&](Communicator& world) {
    EXPECT_TRUE(add_up(world, 10).ok());
    if (world.rank() == 1) return;
    auto done = add_up(world, 10);
    ASSERT_FALSE(done.ok());
    EXPECT_NE(done.error().text().find("rank 1 on node "), std::string::npos) << done.error().text();
  });
}

TEST_P(Faults, ARankThatLeftBeforeAnythingWasSentIsNamed) {
  Meeting meeting = meet(2, 2s);
  run_threads(meeting, [&](Communicator& world) {
    if (world.rank() == 1) {
      { const Communicator left = std::move(world); }
      ++board_.count();
      return;
    }
    wait_until([&] { return board_.count() == 1; });
    auto done = world.barrier().wait();
    ASSERT_FALSE(done.ok());
    EXPECT_TRUE(done.error().text().starts_with("rank 1 on node ")) << done.error().text();
    EXPECT_NE(done.error().text().find("barrier #1"), std::string::npos) << done.error().text();
  });
}

TEST_P(Faults, DifferentOperationsAreToldApart) {
  Meeting meeting = meet(4, 20s);
  run_threads(meeting, [&](Communicator& world) {
    EXPECT_TRUE(add_up(world, 10).ok());
    float value = 0;
    Result<> done =
        world.rank() == 3 ? world.broadcast(&value, 1, DataType::f32, 0).wait() : add_up(world, 1);
    if (done.ok()) done = world.barrier().wait();
    ASSERT_FALSE(done.ok());
    const std::string text = done.error().text();
    EXPECT_TRUE(text.starts_with("rank 3 on node ")) << text;
    EXPECT_NE(text.find("called broadcast #2 where the others called all_reduce"), std::string::npos) << text;
  });
}

TEST_P(Faults, DifferentSizesAreToldApart) {
  Meeting meeting = meet(3, 20s);
  run_threads(meeting, [&](Communicator& world) {
    auto done = add_up(world, world.rank() == 1 ? 99 : 100);
    if (done.ok()) done = world.barrier().wait();
    ASSERT_FALSE(done.ok());
    const std::string text = done.error().text();
    EXPECT_TRUE(text.starts_with("rank 1 on node ")) << text;
    EXPECT_NE(text.find("396 B"), std::string::npos) << text;
  });
}

TEST_P(Faults, AbortWakesEveryWaiter) {
  Meeting meeting = meet(3, 60s);
  run_threads(meeting, [&](Communicator& world) {
    std::thread other;
    if (world.rank() == 0) {
      other = std::thread([&] {
        wait_until([&] { return board_.count() == 3; });
        world.abort("the loss is not a number");
      });
    }
    ++board_.count();
    auto done = world.rank() == 0 ? add_up(world, 10) : Result<>();
    if (world.rank() != 0) {  // never enters what rank 0 waits in
      float value = 0;
      done = world.recv(&value, 1, DataType::f32, 0).wait();
    }
    if (other.joinable()) other.join();
    ASSERT_FALSE(done.ok());
    EXPECT_NE(done.error().text().find("aborted: the loss is not a number"), std::string::npos)
        << done.error().text();
    EXPECT_FALSE(add_up(world, 10).ok());  // and stays so
  });
}

TEST_P(Faults, CheckSaysWhetherResultsCanBeBelieved) {
  Meeting meeting = meet(2, 60s);
  run_threads(meeting, [&](Communicator& world) {
    EXPECT_TRUE(world.check().ok());
    ASSERT_TRUE(world.barrier().wait().ok());  // both have looked
    if (world.rank() == 1) world.abort("enough");
    EXPECT_FALSE(world.barrier().wait().ok());
    const auto checked = world.check();
    ASSERT_FALSE(checked.ok());
    EXPECT_NE(checked.error().text().find("aborted: enough"), std::string::npos) << checked.error().text();
  });
}

TEST_P(Faults, AbortOfAGroupOfOneReachesEverybody) {
  Meeting meeting = meet(2, 60s);
  run_threads(meeting, [&](Communicator& world) {
    auto alone = world.split(world.rank(), 0);
    ASSERT_TRUE(alone.ok());
    if (world.rank() == 1) alone->abort("enough");
    auto done = world.barrier().wait();
    ASSERT_FALSE(done.ok());
    EXPECT_NE(done.error().text().find("aborted: enough"), std::string::npos) << done.error().text();
  });
}

TEST_P(Faults, NoSharedMemoryIsLeftWhenAllAreKilled) {
  const auto shared_files = [] {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
      const std::string name = entry.path().filename();
      // A folder is one of the memory of ranks elsewhere on this machine.
      if (entry.is_regular_file() && name.find("tutti") != std::string::npos) names.push_back(name);
    }
    return names;
  };
  Meeting meeting = meet(3, 60s);
  RankProcesses ranks(meeting, busy(board_, 300'000));
  wait_until([&] { return board_.count() == 3; });
  EXPECT_TRUE(shared_files().empty()) << "while they run";
  for (int rank = 0; rank < 3; ++rank) kill(ranks.pid(rank), SIGKILL);
  for (int rank = 0; rank < 3; ++rank) EXPECT_TRUE(WIFSIGNALED(ranks.wait(rank)));
  EXPECT_TRUE(shared_files().empty());
}

// A peer that is not there any more is knocked at until the deadline, unless it is known to have died.
TEST(Connecting, AFaultEndsTheSearchForARoad) {
  auto links = Links::start({});
  ASSERT_TRUE(links.ok()) << links.error().text();
  auto closed = listen_on(*Endpoint::of("127.0.0.1", 0));
  ASSERT_TRUE(closed.ok());
  const Address peer{.rank = 1, .host = "elsewhere", .addresses = {"127.0.0.1"}, .port = *port_of(*closed)};
  *closed = Socket();
  Fault fault;
  std::thread hub([&] { fault.raise("rank 1 died"); });
  const auto road = (*links)->route(peer, Clock::now() + std::chrono::minutes(10), fault);
  hub.join();
  ASSERT_FALSE(road.ok());
  EXPECT_EQ(road.error().text(), "rank 1 died");
}

TEST(Connecting, ALateRankIsWaitedFor) {
  Meeting meeting(2);
  const Options late = meeting.of(1);
  std::thread first([options = meeting.of(0)] {
    auto world = Communicator::connect(options);
    ASSERT_TRUE(world.ok()) << world.error().text();
    EXPECT_TRUE(add_up(*world, 10).ok());
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // what lateness is
  {
    auto world = Communicator::connect(late);
    ASSERT_TRUE(world.ok()) << world.error().text();
    EXPECT_TRUE(add_up(*world, 10).ok());
  }
  first.join();
}

TEST(Connecting, RanksThatNeverComeAreNamed) {
  Meeting meeting(4);
  meeting.options().connect_timeout = std::chrono::milliseconds(500);
  std::thread first([options = meeting.of(0)] {
    auto world = Communicator::connect(options);
    ASSERT_FALSE(world.ok());
    EXPECT_NE(world.error().text().find("2 of 4 ranks have not come within 500ms: 1, 3"), std::string::npos)
        << world.error().text();
  });
  auto world = Communicator::connect(meeting.of(2));
  EXPECT_FALSE(world.ok());
  first.join();
}

// Rank 0 stays neither for the rank that says nothing, nor for as long as an operation may take.
TEST(Connecting, AMeetingThatFailsEndsRankZeroThoughAFrozenRankStays) {
  Meeting meeting(3);
  meeting.options().connect_timeout = std::chrono::milliseconds(300);
  meeting.options().deadline = std::chrono::hours(1);
  const Options first = meeting.of(0);
  const auto patience = Clock::now() + std::chrono::seconds(60);
  auto frozen = dial(*Endpoint::of("127.0.0.1", first.master_port), patience);
  ASSERT_TRUE(frozen.ok()) << frozen.error().text();
  Writer hello;
  hello.number(std::int32_t{1}).number(std::int32_t{3}).text("n1").text("").text("");
  ASSERT_TRUE(send_all(*frozen, wire_form(FrameKind::hello, hello.take()), patience).ok());
  const auto world = Communicator::connect(first);
  ASSERT_FALSE(world.ok());
  EXPECT_NE(world.error().text().find("2 of 3 ranks have not come within 300ms: 1, 2"), std::string::npos)
      << world.error().text();
  FrameReader reader;
  Frame frame;
  while (frame.kind != FrameKind::fault) {
    char byte = 0;
    ASSERT_TRUE(receive_all(*frozen, &byte, 1, patience).ok());
    reader.add({&byte, 1});
    while (frame.kind != FrameKind::fault && reader.next(frame) == FrameReader::Next::frame) {}
  }
  EXPECT_NE(frame.content.find("aborted: 2 of 3 ranks have not come"), std::string::npos) << frame.content;
}

TEST(Connecting, OfTwoProcessesWithOneRankTheSecondIsRefused) {
  Meeting meeting(2);
  std::atomic<int> connected{0};
  std::atomic<int> refused{0};
  const auto join = [&](const Options& options) {
    auto world = Communicator::connect(options);
    if (world.ok()) {
      ++connected;
      wait_until([&] { return refused == 1; });
    } else {
      EXPECT_NE(world.error().text().find("rank 1 is already there"), std::string::npos)
          << world.error().text();
      ++refused;
    }
  };
  std::vector<std::thread> threads;
  for (const Options& options : {meeting.of(0), meeting.of(1), meeting.of(1)})
    threads.emplace_back(join, options);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(connected, 2);
}

TEST(Connecting, WithoutRankZeroTheErrorSaysWhereItWasLookedFor) {
  Meeting meeting(2);
  meeting.options().connect_timeout = std::chrono::milliseconds(300);
  Options alone = meeting.of(1);
  {
    const Options closed = meeting.of(0);
    close(closed.hub_listener);
  }
  auto world = Communicator::connect(alone);
  ASSERT_FALSE(world.ok());
  EXPECT_NE(world.error().text().find("rank 0 cannot be reached at 127.0.0.1 port "), std::string::npos)
      << world.error().text();
}

TEST(Connecting, GarbageAtTheHubIsDropped) {
  Meeting meeting(2);
  const std::uint16_t port = meeting.options().master_port;
  std::vector<Socket> strangers;
  for (const std::string& garbage :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(4, '\xff'), std::string("\x05\0\0\0\x03junk", 9),
        std::string("\x02\0\0\0\x00\x01", 6), std::string()}) {
    auto socket = dial(*Endpoint::of("127.0.0.1", port), Clock::now() + std::chrono::seconds(5));
    ASSERT_TRUE(socket.ok());
    ASSERT_TRUE(send_all(*socket, garbage, Clock::now() + std::chrono::seconds(5)).ok());
    strangers.push_back(std::move(*socket));
  }
  run_threads(meeting, [](Communicator& world) { EXPECT_TRUE(add_up(world, 1000).ok()); });
}

// He knows all that a rank is told but the secret, and is there before any rank.
TEST(Connecting, AStrangerGetsNoRankAndTheWorldStarts) {
  Meeting meeting(2);
  meeting.options().secret = "of this attempt alone";
  const std::uint16_t port = meeting.options().master_port;
  const auto deadline = Clock::now() + std::chrono::seconds(60);
  std::array<Fault, 3> faults;
  std::vector<std::future<Result<std::unique_ptr<Control>>>> strangers;
  // Without a secret, with a wrong one, and as one that nobody else will be.
  for (const auto& [at, seat] : std::map<std::size_t, Control::Seat>{
           {0, {1, 2, "n1"}}, {1, {1, 2, "n1", "guessed"}}, {2, {0, 2, "n1", ""}}})
    strangers.push_back(std::async(std::launch::async, [&, number = at, who = seat] {
      return Control::connect("127.0.0.1", port, who, deadline, faults[number]);
    }));
  run_threads(meeting, [&](Communicator& world) {
    if (world.rank() == 0) {
      for (auto& stranger : strangers) {
        const auto answered = stranger.get();
        ASSERT_FALSE(answered.ok());
        EXPECT_NE(answered.error().text().find("has not the secret of this attempt"), std::string::npos)
            << answered.error().text();
      }
    }
    EXPECT_TRUE(add_up(world, 1000).ok());
  });
}

// Who has taken the port of rank 0 hears nothing but who is asking.
TEST(Connecting, ARankGoesOnWithNobodyWhoHasNotTheSecret) {
  Meeting meeting(2);
  const std::uint16_t port = meeting.options().master_port;
  const auto deadline = Clock::now() + std::chrono::seconds(60);
  const Options first = meeting.of(0);
  auto stranger = std::async(std::launch::async, [&] { return Communicator::connect(first); });
  Fault fault;
  const auto met = Control::connect("127.0.0.1", port, {1, 2, "n1", "of this attempt"}, deadline, fault);
  ASSERT_FALSE(met.ok());
  EXPECT_NE(met.error().text().find("is not rank 0 of this attempt"), std::string::npos)
      << met.error().text();
  EXPECT_FALSE(stranger.get().ok());
}

}  // namespace
}  // namespace tutti::comm
