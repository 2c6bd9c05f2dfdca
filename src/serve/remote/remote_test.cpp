#include "serve/remote/remote.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <deque>
#include <thread>
#include <tuple>

#include "base/prng.hpp"
#include "serve/batch/toy_test.hpp"
#include "serve/remote/channel.hpp"

namespace tutti::serve::remote {
namespace {

const Limits toy_limits{.vocabulary = 40,
                        .context = 64,
                        .block_tokens = 4,
                        .blocks = 16,
                        .step_tokens_max = 16,
                        .step_rows_max = 8,
                        .adapters = 2};

class ToyBehind final : public Model {
 public:
  const Limits& limits() const override { return toy_.limits(); }
  Result<> step(std::span<const Chunk> chunks) override {
    if (chunks.empty()) return invalid("there is nothing to do").remedy("give it something");
    toy_.step(chunks);
    return {};
  }
  Result<std::vector<Chosen>> choose(std::span<const Choice> choices) override {
    return toy_.choose(choices);
  }
  Result<std::vector<float>> logits(std::int32_t row) override { return toy_.logits(row); }
  std::string describe() const override { return "a toy"; }

 private:
  Toy toy_{toy_limits};
};

// The same, ahead: an answer is ready when somebody looks for the third time.
class AheadBehind final : public Model {
 public:
  const Limits& limits() const override { return toy_.limits(); }
  Result<> step(std::span<const Chunk> chunks) override {
    if (chunks.empty()) return invalid("there is nothing to do").remedy("give it something");
    toy_.step(chunks);
    return {};
  }
  Result<std::vector<Chosen>> choose(std::span<const Choice>) override { return failed("it is asked ahead"); }
  bool works_ahead() const override { return true; }
  Result<> ask(std::span<const Choice> choices) override {
    answers_.push_back(toy_.choose(choices));
    looks_ = 0;
    return {};
  }
  bool has_answer() override { return ++looks_ >= 3; }
  Result<std::vector<Chosen>> answer() override {
    auto first = std::move(answers_.front());
    answers_.pop_front();
    return first;
  }
  Result<std::vector<float>> logits(std::int32_t row) override { return toy_.logits(row); }
  std::string describe() const override { return "a toy"; }

 private:
  Toy toy_{toy_limits};
  std::deque<std::vector<Chosen>> answers_;
  int looks_ = 0;
};

// Both ends in this process.
class RemoteTest : public testing::Test {
 protected:
  RemoteTest() {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    own.emplace(files::FileDescriptor(ends[0]));
    host = std::thread([descriptor = ends[1]] {
      EXPECT_TRUE(host_model(descriptor, [] {
        return Result<Made>({std::make_unique<ToyBehind>(), "these files"});
      }));
    });
    const auto ready = own->receive();
    EXPECT_TRUE(ready && *ready && (*ready)->word == Word::ready);
    const auto read = decode_ready((*ready)->bytes);
    EXPECT_TRUE(read && read->about == "a toy" && read->limits.vocabulary == 40 &&
                read->limits.adapters == 2 && read->fingerprint == "these files");
  }
  ~RemoteTest() override {
    own.reset();
    host.join();
  }
  Message ask(Word word, const std::string& bytes) {
    EXPECT_TRUE(own->send(word, bytes));
    auto answer = own->receive();
    EXPECT_TRUE(answer && *answer);
    return **answer;
  }

  std::optional<Channel> own;
  std::thread host;
};

TEST_F(RemoteTest, ComputesWhatTheModelComputes) {
  const std::vector<Token> tokens{1, 2, 3, 4, 5};
  const std::vector<BlockId> blocks{3, 1};
  const Chunk chunk{.tokens = tokens, .blocks = blocks, .rows = 2, .adapter = 2};
  const std::vector<std::pair<Token, float>> biases{{7, 3.5F}};
  const std::vector<Choice::Seen> seen{{3, 2}, {9, 0}};
  const std::vector<std::uint64_t> allowed{0xFFFFFFFFFEU};
  const std::vector<Choice> choices{{.row = 0, .logprobs = 3},
                                    {.row = 1,
                                     .temperature = 0.7F,
                                     .top_k = 9,
                                     .top_p = 0.9F,
                                     .min_p = 0.01F,
                                     .uniform = 0.4,
                                     .biases = biases,
                                     .repetition_penalty = 1.2F,
                                     .presence_penalty = 0.5F,
                                     .frequency_penalty = 0.25F,
                                     .seen = seen,
                                     .allowed = allowed,
                                     .logprobs = 2}};
  Toy here(toy_limits);
  here.step({&chunk, 1});
  const auto expected = here.choose(choices);
  ASSERT_TRUE(own->send(Word::step, encode(std::span<const Chunk>(&chunk, 1))));
  const Message answer = ask(Word::choose, encode(std::span<const Choice>(choices)));
  ASSERT_EQ(answer.word, Word::chosen);
  const auto chosen = decode_chosen(answer.bytes);
  ASSERT_TRUE(chosen);
  ASSERT_EQ(chosen->size(), expected.size());
  for (std::size_t at = 0; at < expected.size(); ++at) {
    EXPECT_EQ((*chosen)[at].token, expected[at].token);
    EXPECT_EQ((*chosen)[at].logprob, expected[at].logprob);
    ASSERT_EQ((*chosen)[at].likeliest.size(), expected[at].likeliest.size());
    EXPECT_EQ((*chosen)[at].likeliest[1].token, expected[at].likeliest[1].token);
  }
  const Message row = ask(Word::row, encode(1));
  EXPECT_EQ(*decode_logits(row.bytes), here.logits(1));
}

TEST_F(RemoteTest, AStepThatFailsIsToldWithTheChoice) {
  ASSERT_TRUE(own->send(Word::step, encode(std::span<const Chunk>())));
  const Message answer = ask(Word::choose, encode(std::span<const Choice>()));
  ASSERT_EQ(answer.word, Word::failed);
  const Error error = decode_error(answer.bytes);
  EXPECT_EQ(error.code(), ErrorCode::invalid);
  EXPECT_EQ(error.message(), "there is nothing to do");
  EXPECT_EQ(error.remedy(), "give it something");
}

TEST_F(RemoteTest, AMaskOfAnotherVocabularyIsRefused) {
  const std::vector<std::uint64_t> allowed{1, 2, 3};
  const Choice choice{.allowed = allowed};
  EXPECT_EQ(ask(Word::choose, encode(std::span<const Choice>(&choice, 1))).word, Word::failed);
}

// Two steps are given before the first is answered; the second one fails, a third is fine again.
TEST(Remote, AModelThatWorksAheadIsAnsweredInOrder) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  std::optional<Channel> own{files::FileDescriptor(ends[0])};
  std::thread host([descriptor = ends[1]] {
    EXPECT_TRUE(host_model(descriptor, [] { return Result<Made>({std::make_unique<AheadBehind>()}); }));
  });
  const auto receive = [&] {
    auto message = own->receive();
    EXPECT_TRUE(message && *message);
    return **message;
  };
  EXPECT_TRUE(decode_ready(receive().bytes)->works_ahead);
  const std::vector<Token> tokens{1, 2, 3};
  const std::vector<Token> unknown{0};
  const std::vector<BlockId> blocks{3, 1};
  const Choice choice;
  Chunk chunk{.tokens = tokens, .blocks = blocks, .rows = 1};
  Toy here(toy_limits);
  std::vector<Token> expected;
  const auto give = [&](std::span<const Chunk> chunks) {
    ASSERT_TRUE(own->send(Word::step, encode(chunks)));
    ASSERT_TRUE(own->send(Word::choose, encode(std::span<const Choice>(&choice, 1))));
    if (chunks.empty()) return;
    here.step(chunks);
    expected.push_back(here.choose({&choice, 1}).front().token);
  };
  const auto token_told = [&] { return decode_chosen(receive().bytes)->front().token; };
  give({&chunk, 1});
  chunk = {.tokens = unknown, .first = 3, .blocks = blocks, .rows = 1, .follows = 0};
  give({&chunk, 1});
  EXPECT_EQ(token_told(), expected[0]);
  give({});
  EXPECT_EQ(token_told(), expected[1]);
  EXPECT_EQ(receive().word, Word::failed);
  chunk.first = 4;
  give({&chunk, 1});
  EXPECT_EQ(token_told(), expected[2]);
  own.reset();
  host.join();
}

// A device that has failed is told of once; then the process ends, so that another one can have the device.
TEST(Remote, ADeviceThatFailedEndsItsWorker) {
  class Broken final : public Model {
   public:
    const Limits& limits() const override { return toy_limits; }
    Result<> step(std::span<const Chunk>) override { return failed("an illegal address"); }
    Result<std::vector<Chosen>> choose(std::span<const Choice>) override { return std::vector<Chosen>(); }
    Result<std::vector<float>> logits(std::int32_t) override { return std::vector<float>(); }
    std::string describe() const override { return "broken"; }
  };
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  const Channel own{files::FileDescriptor(ends[0])};
  std::thread host(
      [&] { EXPECT_FALSE(host_model(ends[1], [] { return Result<Made>({std::make_unique<Broken>()}); })); });
  const auto ready = own.receive();
  ASSERT_TRUE(ready && *ready);
  EXPECT_TRUE(own.is_open());
  ASSERT_TRUE(own.send(Word::step, encode(std::span<const Chunk>())));
  ASSERT_TRUE(own.send(Word::choose, encode(std::span<const Choice>())));
  const auto told = own.receive();
  ASSERT_TRUE(told && *told);
  EXPECT_EQ(decode_error((*told)->bytes).message(), "an illegal address");
  host.join();
  const auto nothing = own.receive();
  EXPECT_TRUE(nothing && !*nothing);
  EXPECT_FALSE(own.is_open());
}

TEST(Remote, AModelThatIsNotThereIsToldWhy) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  const Channel own{files::FileDescriptor(ends[0])};
  EXPECT_TRUE(host_model(ends[1], []() -> Result<Made> { return failed("no GPU"); }));
  const auto told = own.receive();
  ASSERT_TRUE(told && *told);
  EXPECT_EQ(decode_error((*told)->bytes).message(), "no GPU");
}

TEST(Remote, AProgramThatIsNoWorkerIsAnError) {
  const auto none = open_model({"/nowhere/tutti-worker"});
  ASSERT_FALSE(none);
  const auto ends_at_once = open_model({"false"});
  ASSERT_FALSE(ends_at_once);
  EXPECT_NE(ends_at_once.error().text().find("has ended"), std::string::npos) << ends_at_once.error().text();
}

// What a script prints to say that it is ready.
std::string ready_script() {
  const std::string ready = encode(Ready{toy_limits, false, "a mortal", "these files"});
  const FrameHead head{Word::ready, static_cast<std::uint32_t>(ready.size())};
  std::string bytes(reinterpret_cast<const char*>(&head), sizeof head);
  bytes += ready;
  std::string escaped;
  for (const char byte : bytes) {
    const auto code = static_cast<unsigned char>(byte);
    escaped += {'\\', static_cast<char>('0' + code / 64), static_cast<char>('0' + code / 8 % 8),
                static_cast<char>('0' + code % 8)};
  }
  return "printf '" + escaped + "' >&3; ";
}

// It hears all that it is told and says no word, as one whose GPU hangs.
TEST(Remote, AWorkerThatDoesNotAnswerIsEndedAndLost) {
  auto model = open_model({"sh", "-c", ready_script() + "exec cat <&3 >/dev/null"}, {.step = 50ms});
  ASSERT_TRUE(model) << model.error().text();
  EXPECT_TRUE((*model)->step({}));
  EXPECT_FALSE((*model)->is_lost());
  const auto chosen = (*model)->choose({});
  ASSERT_FALSE(chosen);
  EXPECT_EQ(chosen.error().text(), "the worker with the model has not answered for 50ms, and was ended");
  EXPECT_TRUE((*model)->is_lost());
}

// A message that has begun is no answer.
TEST(Remote, AWorkerThatStopsInAWordIsEndedAndLost) {
  auto model = open_model(
      {"sh", "-c", ready_script() + "head -c 1 <&3 >/dev/null; printf abc >&3; exec tail -f /dev/null"},
      {.step = 300ms});
  ASSERT_TRUE(model) << model.error().text();
  EXPECT_TRUE((*model)->step({}));
  const auto chosen = (*model)->choose({});
  ASSERT_FALSE(chosen);
  EXPECT_NE(chosen.error().text().find("has not answered for"), std::string::npos) << chosen.error().text();
  EXPECT_TRUE((*model)->is_lost());
}

TEST(Remote, AModelThatIsNeverLoadedIsAnError) {
  const auto model = open_model({"tail", "-f", "/dev/null"}, {.loading = 50ms});
  ASSERT_FALSE(model);
  EXPECT_NE(model.error().text().find("has not answered for 50ms"), std::string::npos)
      << model.error().text();
}

// A script that says it is ready, and dies of what it is asked.
TEST(Remote, AWorkerThatDiesIsAnErrorAndNotTheEnd) {
  auto model = open_model({"sh", "-c", ready_script() + "head -c 1 <&3 >/dev/null; exit 3"});
  ASSERT_TRUE(model) << model.error().text();
  EXPECT_EQ((*model)->describe(), "a mortal");
  EXPECT_EQ((*model)->fingerprint(), "these files");
  EXPECT_FALSE((*model)->is_lost());
  const Choice choice{};
  for (int again = 0; again < 3; ++again) {
    static_cast<void>((*model)->step({}));
    const auto chosen = (*model)->choose({&choice, 1});
    ASSERT_FALSE(chosen);
    EXPECT_NE(chosen.error().text().find("the worker with the model has ended"), std::string::npos)
        << chosen.error().text();
    EXPECT_TRUE((*model)->is_lost());
  }
}

TEST(Remote, EveryNumberOfAChoiceTravels) {
  const std::vector<std::pair<Token, float>> biases{{1, -2.5F}};
  const std::vector<Choice::Seen> seen{{4, 7}};
  const std::vector<std::uint64_t> allowed{6};
  const Choice asked{.row = 1,
                     .temperature = 0.5F,
                     .top_k = 2,
                     .top_p = 0.75F,
                     .min_p = 0.125F,
                     .uniform = 0.3,
                     .biases = biases,
                     .repetition_penalty = 1.5F,
                     .presence_penalty = -1,
                     .frequency_penalty = 0.25F,
                     .seen = seen,
                     .allowed = allowed,
                     .given = 5,
                     .logprobs = 3,
                     .pooling = Pooling::mean};
  const auto told = decode_choices(encode(std::span<const Choice>(&asked, 1)));
  ASSERT_TRUE(told);
  const Choice& choice = told->choices.front();
  const auto numbers = [](const Choice& of) {
    return std::make_tuple(of.row, of.temperature, of.top_k, of.top_p, of.min_p, of.uniform,
                           of.repetition_penalty, of.presence_penalty, of.frequency_penalty, of.given,
                           of.logprobs, of.pooling);
  };
  EXPECT_EQ(numbers(choice), numbers(asked));
  ASSERT_EQ(choice.biases.size(), 1U);
  EXPECT_EQ(choice.biases.front(), biases.front());
  ASSERT_EQ(choice.seen.size(), 1U);
  EXPECT_EQ(choice.seen.front().token, 4);
  EXPECT_EQ(choice.seen.front().generated, 7);
  EXPECT_EQ(std::vector(choice.allowed.begin(), choice.allowed.end()), allowed);
}

TEST(Remote, HiddenNumbersTravel) {
  const std::vector<Choice> asked{
      {.row = 1, .pooling = Pooling::last}, {.row = 2}, {.pooling = Pooling::mean}};
  const auto choices = decode_choices(encode(std::span<const Choice>(asked)));
  ASSERT_TRUE(choices);
  EXPECT_EQ(choices->choices[0].pooling, Pooling::last);
  EXPECT_EQ(choices->choices[1].pooling, Pooling::none);
  EXPECT_EQ(choices->choices[2].pooling, Pooling::mean);
  const std::vector<Chosen> made{{.token = 3, .hidden = {1.5F, -2}, .hidden_sum = {0.25, 1e300}}};
  const auto chosen = decode_chosen(encode(std::span<const Chosen>(made)));
  ASSERT_TRUE(chosen);
  EXPECT_EQ(chosen->front().hidden, made.front().hidden);
  EXPECT_EQ(chosen->front().hidden_sum, made.front().hidden_sum);
}

TEST(Remote, BytesThatAreNoMessageAreRefused) {
  const std::vector<Token> tokens{1, 2};
  const std::vector<BlockId> blocks{3};
  const Chunk chunk{.tokens = tokens, .blocks = blocks, .rows = 1};
  const std::string step = encode(std::span<const Chunk>(&chunk, 1));
  for (std::size_t size = 0; size < step.size(); ++size)
    EXPECT_FALSE(decode_step(std::string_view(step).substr(0, size))) << size;
  EXPECT_FALSE(decode_step(step + "x"));
  Prng random(5);
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes = step;
    for (int change = 0; change < 3; ++change)
      bytes[random.below(bytes.size())] = static_cast<char>(random.below(256));
    static_cast<void>(decode_step(bytes).ok());
    static_cast<void>(decode_choices(bytes).ok());
    static_cast<void>(decode_chosen(bytes).ok());
    static_cast<void>(decode_ready(bytes).ok());
    static_cast<void>(decode_error(bytes).text());
  }
}

}  // namespace
}  // namespace tutti::serve::remote
