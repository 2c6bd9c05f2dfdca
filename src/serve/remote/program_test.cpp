// A program in another process: this one, started again as the worker.
#include "serve/remote/program.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <new>
#include <string_view>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/prng.hpp"
#include "base/scarcity/scarcity.hpp"
#include "serve/program/within_memory.hpp"
#include "serve/remote/channel.hpp"
#include "serve/remote/remote.hpp"

namespace tutti::serve::remote {
namespace {

constexpr Patience hasty{.first = 1ms, .most = 5ms, .forgets = 1h};

constexpr std::size_t much_bytes = std::size_t{1} << 20;

std::vector<Tensor> letters(const std::string& text) {
  return {{"x", DataType::uint8, {static_cast<std::int64_t>(text.size())}, text}};
}

Result<std::vector<Tensor>> add_one(const std::vector<Tensor>& inputs) {
  if (inputs.front().bytes == "die") std::_Exit(7);
  if (inputs.front().bytes == "who") return letters(std::to_string(::getpid()));
  if (inputs.front().bytes == "much") return letters(std::string(much_bytes, 'x'));
  if (inputs.front().bytes == "hungry") throw std::bad_alloc();
  while (inputs.front().bytes == "forever") ::pause();
  if (inputs.front().bytes == "no") return invalid("that is not taken").remedy("take another");
  std::vector<Tensor> outputs = inputs;
  for (char& each : outputs.front().bytes) ++each;
  return outputs;
}

// This program as its own worker, before any test: what the variable asks for.
constexpr const char* kind_variable = "TUTTI_TEST_WORKER";
[[maybe_unused]] const bool is_worker = [] {
  const char* const kind = std::getenv(kind_variable);
  if (kind == nullptr) return false;
  const auto done = host_program(worker_descriptor, [&]() -> Result<Hosted> {
    while (std::string_view(kind) == "endless") ::pause();
    // A path is that of a file which says which version of the toy it is.
    const bool is_file = std::string_view(kind).starts_with('/');
    if (std::string_view(kind) != "two" && !is_file) return invalid("no such model");
    std::string version;
    if (is_file) std::ifstream(kind) >> version;
    return Hosted{{{.inputs = {{"x", DataType::uint8, std::nullopt}}, .outputs = {}}, "a toy", version},
                  {add_one, add_one}};
  });
  std::_Exit(done ? 0 : 1);
}();

std::vector<std::string> worker(const std::string& kind) {
  char path[PATH_MAX] = {};
  EXPECT_GT(::readlink("/proc/self/exe", path, sizeof path - 1), 0);
  return {"env", std::string(kind_variable) + "=" + kind, path};
}

std::string answer(Program& program, int lane, const std::string& text) {
  const auto made = program.run(lane, letters(text));
  return made ? made->front().bytes : made.error().text();
}

// Until it is there again.
std::string answer_in_the_end(Program& program, int lane, const std::string& text) {
  for (;;) {
    const auto made = program.run(lane, letters(text));
    if (made) return made->front().bytes;
    if (made.error().code() != ErrorCode::unknown) return made.error().text();
    std::this_thread::yield();
  }
}

TEST(RemoteProgram, ComputesInAllItsLanes) {
  auto program = open_program(worker("two"), 2, hasty);
  ASSERT_TRUE(program) << program.error().text();
  EXPECT_EQ((*program)->describe(), "a toy");
  EXPECT_EQ((*program)->signature().inputs.front().name, "x");
  std::thread other([&] {
    for (int nth = 0; nth < 200; ++nth) EXPECT_EQ(answer(**program, 1, "abc"), "bcd");
  });
  for (int nth = 0; nth < 200; ++nth) EXPECT_EQ(answer(**program, 0, "xyz"), "yz{");
  other.join();
  const auto refused = (*program)->run(0, letters("no"));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::invalid);
  EXPECT_EQ(refused.error().remedy(), "take another");
  EXPECT_TRUE((*program)->state().is_ready);
  EXPECT_EQ((*program)->state().restarts, 0);
}

TEST(RemoteProgram, AWorkerThatDiesOfARequestIsStartedAgain) {
  auto program = open_program(worker("two"), 2, hasty);
  ASSERT_TRUE(program) << program.error().text();
  const auto dead = (*program)->run(0, letters("die"));
  ASSERT_FALSE(dead);
  EXPECT_EQ(dead.error().code(), ErrorCode::unknown);
  EXPECT_NE(dead.error().text().find("has ended: exit code 7"), std::string::npos) << dead.error().text();
  EXPECT_EQ(answer_in_the_end(**program, 0, "abc"), "bcd");
  EXPECT_EQ(answer_in_the_end(**program, 1, "abc"), "bcd");
  EXPECT_EQ((*program)->state().restarts, 1);
}

TEST(RemoteProgram, WhoLooksAfterItHearsOfAWorkerThatHasEnded) {
  std::vector<std::promise<std::string>> told(2);
  std::size_t count = 0;
  auto program = open_program(worker("two"), 2, hasty, [&](const std::string& text) {
    if (count < told.size()) told[count++].set_value(text);
  });
  ASSERT_TRUE(program) << program.error().text();
  EXPECT_FALSE((*program)->run(0, letters("die")));
  const std::string ended = told[0].get_future().get();
  EXPECT_NE(ended.find("has ended: exit code 7"), std::string::npos) << ended;
  EXPECT_EQ(told[1].get_future().get(), "the model is there again");
}

TEST(RemoteProgram, AnAnswerForWhichThereIsNoMemoryIsLostAndItsLaneGoesOn) {
  auto program = open_program(worker("two"), 2, hasty);
  ASSERT_TRUE(program) << program.error().text();
  const auto much = letters("much");
  bool is_refused = false;
  {
    const Scarcity scarcity(much_bytes / 2);
    try {
      static_cast<void>((*program)->run(0, much).ok());
    } catch (const std::bad_alloc&) {
      is_refused = true;
    }
  }
  EXPECT_TRUE(is_refused);
  EXPECT_EQ(answer(**program, 0, "abc"), "bcd");
  EXPECT_EQ(answer(**program, 0, "much").size(), much_bytes);
  EXPECT_EQ((*program)->state().restarts, 0);
}

TEST(RemoteProgram, AWorkerWithoutMemoryForARequestSaysSoAndGoesOn) {
  auto program = open_program(worker("two"), 2, hasty);
  ASSERT_TRUE(program) << program.error().text();
  const auto refused = (*program)->run(0, letters("hungry"));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error(), no_memory());
  EXPECT_EQ(answer(**program, 0, "abc"), "bcd");
  EXPECT_EQ((*program)->state().restarts, 0);
}

TEST(RemoteProgram, AWorkerThatIsKilledWhileNobodyAsksIsStartedAgain) {
  auto program = open_program(worker("two"), 2, hasty);
  ASSERT_TRUE(program) << program.error().text();
  const pid_t pid = std::stoi(answer(**program, 0, "who"));
  ASSERT_EQ(::kill(pid, SIGKILL), 0);
  while ((*program)->state().restarts == 0) std::this_thread::yield();
  EXPECT_NE(answer_in_the_end(**program, 0, "who"), std::to_string(pid));
}

TEST(RemoteProgram, AModelThatWasReplacedIsNotServedInItsPlace) {
  const std::string file = testing::TempDir() + "tutti-replaced-" + std::to_string(::getpid());
  std::ofstream(file) << "first";
  auto program = open_program(worker(file), 2, hasty);
  ASSERT_TRUE(program) << program.error().text();
  std::ofstream(file) << "second";
  EXPECT_EQ(answer(**program, 0, "abc"), "bcd") << "what was loaded goes on";
  EXPECT_FALSE((*program)->run(0, letters("die")));
  std::string problem;
  while (problem.find("was replaced") == std::string::npos) {
    const auto state = (*program)->state();
    ASSERT_FALSE(state.is_ready);
    problem = state.problem;
    std::this_thread::yield();
  }
  EXPECT_NE(answer(**program, 0, "abc").find("start this engine again"), std::string::npos);
  EXPECT_EQ((*program)->state().restarts, 0);
  std::ofstream(file) << "first";
  EXPECT_EQ(answer_in_the_end(**program, 0, "abc"), "bcd") << "it is back";
  std::filesystem::remove(file);
}

// Such as the port of an engine, which would stay taken.
TEST(RemoteProgram, AWorkerHasNothingOfItsParentButItsSockets) {
  int ends[2] = {-1, -1};
  ASSERT_EQ(::pipe(ends), 0);
  const auto program = open_program(worker("two"), 2, hasty);
  ASSERT_TRUE(program) << program.error().text();
  ::close(ends[1]);
  pollfd nobody_writes{ends[0], POLLIN, 0};
  EXPECT_EQ(::poll(&nobody_writes, 1, 0), 1);
  EXPECT_EQ(nobody_writes.revents, POLLHUP);
  ::close(ends[0]);
}

TEST(RemoteProgram, StoppingFailsWhatComes) {
  auto program = open_program(worker("two"), 2, hasty);
  ASSERT_TRUE(program) << program.error().text();
  (*program)->stop();
  while ((*program)->state().is_ready) std::this_thread::yield();
  EXPECT_NE(answer(**program, 0, "abc"), "bcd");
}

// As one that was killed, or asked to end before its model was there: nobody is left who could end the
// worker.
TEST(RemoteProgram, AWorkerEndsWithItsEngineWhateverItIsAt) {
  for (const std::string kind : {"endless", "two"}) {
    std::vector<files::FileDescriptor> own;
    posix_spawn_file_actions_t actions;
    ASSERT_EQ(posix_spawn_file_actions_init(&actions), 0);
    std::vector<files::FileDescriptor> theirs;
    for (int lane = 0; lane < 2; ++lane) {
      int ends[2] = {-1, -1};
      ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
      own.emplace_back(ends[0]);
      theirs.emplace_back(fcntl(ends[1], F_DUPFD_CLOEXEC, 100));
      ::close(ends[1]);
      posix_spawn_file_actions_adddup2(&actions, theirs.back().get(), worker_descriptor + lane);
    }
    std::vector<std::string> command = worker(kind);
    std::vector<char*> words;
    for (std::string& word : command) words.push_back(word.data());
    words.push_back(nullptr);
    pid_t pid = 0;
    ASSERT_EQ(posix_spawnp(&pid, words[0], &actions, nullptr, words.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    theirs.clear();
    Channel first(std::move(own.front()));
    if (kind == "two") {
      ASSERT_TRUE(first.receive().ok()) << "it is ready";
      ASSERT_TRUE(first.send(Word::run, encode(letters("forever"))));
    }
    own.clear();
    first = Channel(files::FileDescriptor());
    int status = 0;
    EXPECT_EQ(::waitpid(pid, &status, 0), pid);
    EXPECT_TRUE(WIFEXITED(status));
  }
}

TEST(RemoteProgram, WhatCannotBeLoadedIsTold) {
  const auto none = open_program(worker("none"), 2);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code(), ErrorCode::invalid);
  EXPECT_EQ(none.error().message(), "no such model");
  EXPECT_FALSE(open_program({"/nowhere/tutti-worker"}, 1));
  const auto mute = open_program({"false"}, 1);
  ASSERT_FALSE(mute);
  EXPECT_NE(mute.error().text().find("exit code 1"), std::string::npos) << mute.error().text();
}

TEST(TensorCodec, BytesThatAreNoTensorsAreRefused) {
  const std::vector<Tensor> tensors{{"x", DataType::fp32, {2, 1}, "12345678"},
                                    {"y", DataType::int8, {}, "a"}};
  const std::string bytes = encode(tensors);
  const auto read = decode_tensors(bytes);
  ASSERT_TRUE(read);
  EXPECT_EQ(*read, tensors);
  for (std::size_t size = 0; size < bytes.size(); ++size)
    EXPECT_FALSE(decode_tensors(std::string_view(bytes).substr(0, size))) << size;
  EXPECT_FALSE(decode_tensors(bytes + "x"));
  EXPECT_FALSE(decode_tensors(encode({Tensor{"x", DataType::fp32, {3}, "12345678"}})));
  EXPECT_FALSE(decode_tensors(encode({Tensor{"x", static_cast<DataType>(99), {8}, "12345678"}})));
  Prng random(3);
  for (int round = 0; round < 20'000; ++round) {
    std::string changed = bytes;
    for (int change = 0; change < 3; ++change)
      changed[random.below(changed.size())] = static_cast<char>(random.below(256));
    static_cast<void>(decode_tensors(changed).ok());
    static_cast<void>(decode_card(changed).ok());
  }
}

}  // namespace
}  // namespace tutti::serve::remote
