#include "serve/parallel/parallel.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <array>

#include <gtest/gtest.h>

namespace tutti::serve::parallel {
namespace {

using remote::FrameHead;
using remote::Word;
using remote::Worker;

const Limits small{.vocabulary = 40, .context = 64, .blocks = 8, .step_tokens_max = 16, .step_rows_max = 8};

// A message as a script prints it to its descriptor 3.
std::string printed(Word word, const std::string& bytes) {
  const FrameHead head{word, static_cast<std::uint32_t>(bytes.size())};
  std::string all(reinterpret_cast<const char*>(&head), sizeof head);
  all += bytes;
  std::string escaped;
  for (const char byte : all) {
    const auto code = static_cast<unsigned char>(byte);
    escaped += {'\\', static_cast<char>('0' + code / 64), static_cast<char>('0' + code / 8 % 8),
                static_cast<char>('0' + code % 8)};
  }
  return "printf '" + escaped + "' >&3; ";
}
std::string ready(const Limits& limits = small, const std::string& fingerprint = "these files") {
  return printed(Word::ready, remote::encode(remote::Ready{limits, false, "a script", fingerprint}));
}
// Something is read from it before it goes on.
const std::string hears = "head -c 1 <&3 >/dev/null; ";

// Scripts that hold one end of a pipe: it ends when the last of them has ended.
class Scripts {
 public:
  Scripts() { EXPECT_EQ(::pipe2(ends_.data(), O_CLOEXEC), 0); }
  ~Scripts() {
    ::close(ends_[0]);
    if (ends_[1] >= 0) ::close(ends_[1]);
  }
  Worker::Program rank(int rank, const std::string& script, const remote::Deadlines& deadlines = {}) const {
    const std::string end = "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(ends_[1]);
    return {.command = {"sh", "-c", "exec 9>" + end + "; " + script},
            .name = "rank " + std::to_string(rank) + " of the model",
            .deadlines = deadlines};
  }
  // Waits for it.
  bool all_have_ended() {
    ::close(std::exchange(ends_[1], -1));
    char byte = 0;
    return ::read(ends_[0], &byte, 1) == 0;
  }

 private:
  std::array<int, 2> ends_{-1, -1};
};

// Waits for ever, in the process of the script itself.
const std::string stays = "exec tail -f /dev/null";

std::string problem_of(Model& model) {
  static_cast<void>(model.step({}));
  const auto chosen = model.choose({});
  return chosen ? "none" : chosen.error().text();
}

TEST(Parallel, ARankThatDiesIsNamedAndTheOthersEnd) {
  Scripts scripts;
  auto model = open_ranks({scripts.rank(0, ready() + stays), scripts.rank(1, ready() + hears + "exit 3")});
  ASSERT_TRUE(model) << model.error().text();
  EXPECT_EQ((*model)->describe(), "2 ranks, each a script");
  EXPECT_EQ(problem_of(**model), "rank 1 of the model has ended: exit code 3");
  EXPECT_TRUE(scripts.all_have_ended()) << "rank 0 would have stayed";
  EXPECT_EQ(problem_of(**model), "rank 1 of the model has ended: exit code 3") << "and it stays so";
}

TEST(Parallel, TheFirstRankToo) {
  Scripts scripts;
  auto model =
      open_ranks({scripts.rank(0, ready() + hears + "kill -9 $$"), scripts.rank(1, ready() + stays)});
  ASSERT_TRUE(model) << model.error().text();
  EXPECT_EQ(problem_of(**model), "rank 0 of the model has ended: signal 9");
  EXPECT_TRUE(scripts.all_have_ended());
}

// The others have told of it, and it itself does not answer any more.
TEST(Parallel, ARankThatHangsEndsWithWhatTheOthersSayOfIt) {
  Scripts scripts;
  const std::string told = printed(Word::failed, remote::encode(failed("rank 0 is stopped")));
  auto model =
      open_ranks({scripts.rank(0, ready() + stays), scripts.rank(1, ready() + hears + told + stays)});
  ASSERT_TRUE(model) << model.error().text();
  EXPECT_EQ(problem_of(**model), "rank 0 is stopped");
  EXPECT_TRUE(scripts.all_have_ended());
}

TEST(Parallel, RanksThatAllHangEnd) {
  Scripts scripts;
  const remote::Deadlines short_step{.step = 50ms};
  auto model = open_ranks(
      {scripts.rank(0, ready() + stays, short_step), scripts.rank(1, ready() + stays, short_step)});
  ASSERT_TRUE(model) << model.error().text();
  EXPECT_EQ(problem_of(**model), "no rank of the model answers");
  EXPECT_TRUE((*model)->is_lost());
  EXPECT_TRUE(scripts.all_have_ended());
}

TEST(Parallel, RanksThatNeverLoadEnd) {
  Scripts scripts;
  const remote::Deadlines short_loading{.loading = 50ms};
  const auto model =
      open_ranks({scripts.rank(0, stays, short_loading), scripts.rank(1, stays, short_loading)});
  ASSERT_FALSE(model);
  EXPECT_TRUE(scripts.all_have_ended());
}

// A step that cannot be is nobody's end.
TEST(Parallel, AFailureOfAllIsTheirAnswerAndNoMore) {
  const Scripts scripts;
  const std::string told = printed(Word::failed, remote::encode(invalid("there is no block 9")));
  const std::string fine = printed(Word::chosen, remote::encode(std::span<const Chosen>()));
  // Each reads a step and a choice, which are as long for all: an empty one of each.
  const std::string step = "head -c 32 <&3 >/dev/null; ";
  const std::string script = ready() + step + told + step + fine + stays;
  auto model = open_ranks({scripts.rank(0, script), scripts.rank(1, script)});
  ASSERT_TRUE(model) << model.error().text();
  EXPECT_EQ(problem_of(**model), "there is no block 9");
  EXPECT_EQ(problem_of(**model), "none");
}

TEST(Parallel, WhatOneCannotLoadIsToldAndTheOthersEnd) {
  Scripts scripts;
  const std::string told = printed(Word::failed, remote::encode(invalid("no memory")));
  const auto model = open_ranks({scripts.rank(0, stays), scripts.rank(1, told + stays)});
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().text(), "no memory");
  EXPECT_EQ(model.error().code(), ErrorCode::invalid);
  EXPECT_TRUE(scripts.all_have_ended());
}

TEST(Parallel, RanksThatDoNotAgreeAreNoModel) {
  const Scripts scripts;
  Limits larger = small;
  larger.blocks = 9;
  const auto model = open_ranks({scripts.rank(0, ready() + stays), scripts.rank(1, ready(larger) + stays)});
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().text(), "the ranks have come to different sizes");
}

// Each opens them by itself, and somebody has written them anew in between.
TEST(Parallel, RanksThatHaveReadOtherFilesAreNoModel) {
  const Scripts scripts;
  const auto same = open_ranks({scripts.rank(0, ready() + stays), scripts.rank(1, ready() + stays)});
  ASSERT_TRUE(same) << same.error().text();
  EXPECT_EQ((*same)->fingerprint(), "these files");
  const auto mixed =
      open_ranks({scripts.rank(0, ready() + stays), scripts.rank(1, ready(small, "others") + stays)});
  ASSERT_FALSE(mixed);
  EXPECT_EQ(mixed.error().text(), "the ranks have read different weights: the files were changed meanwhile");
  EXPECT_NE(mixed.error().remedy(), "");
}

TEST(Parallel, ASecondProgramThatIsNotThereEndsTheFirst) {
  Scripts scripts;
  EXPECT_FALSE(open_ranks({scripts.rank(0, ready() + stays), {.command = {"/nowhere/tutti"}}}));
  EXPECT_TRUE(scripts.all_have_ended());
}

// Such as the port of an engine, which would stay taken.
TEST(Parallel, ARankHasNothingOfItsParentButItsSocket) {
  std::array<int, 2> ends{-1, -1};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const Scripts scripts;
  const auto model = open_ranks({scripts.rank(0, ready() + stays)});
  ASSERT_TRUE(model) << model.error().text();
  ::close(ends[1]);
  pollfd nobody_writes{ends[0], POLLIN, 0};
  EXPECT_EQ(::poll(&nobody_writes, 1, 0), 1);
  EXPECT_EQ(nobody_writes.revents, POLLHUP);
  ::close(ends[0]);
}

TEST(Parallel, OptionsThatAreNoneAreRefused) {
  const std::vector<std::string> words{"model"};
  const auto refused = host_model(words, nullptr);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::invalid);
}

}  // namespace
}  // namespace tutti::serve::parallel
