// What becomes of pieces, without a model and without a network.
#include "serve/server/reply.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <new>
#include <utility>

#include "serve/program/within_memory.hpp"

namespace tutti::serve {
namespace {

// A reader that takes only what a test lets it take.
class HeldStream final : public net::Stream {
 public:
  using net::Stream::write;
  void write(net::Text chunk, std::function<void()> written) override {
    text += *chunk;
    under_way = std::move(written);
  }
  void close() override { is_closed = true; }
  void cut() override { is_cut = true; }
  void take() { std::exchange(under_way, nullptr)(); }

  std::string text;
  std::function<void()> under_way;
  bool is_closed = false;
  bool is_cut = false;
};

class HeldExchange final : public net::Exchange {
 public:
  explicit HeldExchange(const std::string& remote, bool is_resumable = false) {
    request_.remote = remote;
    if (is_resumable) request_.headers["tutti-resumable"] = "1";
  }
  const net::Request& request() const override { return request_; }
  void answer(net::Response response) override {
    if (std::exchange(wants_memory, false)) throw std::bad_alloc();
    EXPECT_FALSE(answered);
    answered = std::move(response);
  }
  void cut() override { is_cut = true; }
  bool is_written() const override { return is_read; }
  std::shared_ptr<net::Stream> stream(std::function<void()>) override {
    return stream_ = std::make_shared<HeldStream>();
  }
  void upgrade(std::function<void(std::shared_ptr<net::Socket>)>) override { FAIL(); }

  std::optional<net::Response> answered;
  bool wants_memory = false;  // for the next one
  bool is_cut = false;
  bool is_read = true;  // all of the answer
  std::shared_ptr<HeldStream> stream_;

 private:
  net::Request request_;
};

class Replies : public testing::Test {
 protected:
  struct Asked {
    std::shared_ptr<HeldExchange> exchange;
    std::shared_ptr<Reply> reply;
    HeldStream& stream() const { return *exchange->stream_; }
  };
  Asked ask(const api::Ask& asked, const std::string& remote = "127.0.0.1", const std::string& begin = "",
            bool is_resumable = false) {
    auto exchange = std::make_shared<HeldExchange>(remote, is_resumable);
    auto reply = std::make_shared<Reply>(exchange, metrics, unsent, [this](Reply::Write write) {
      beside.push_back(std::move(write));
      return true;
    });
    reply->begin(asked, {begin}, 1, api::Voice(asked.kind, "id", 0, "tiny", [](Token) { return "a"; }),
                 nullptr);
    return {exchange, reply};
  }
  static api::Ask streamed() {
    api::Ask asked;
    asked.streams = true;
    return asked;
  }
  static api::Ask with_logprobs(std::int32_t logprobs) {
    api::Ask asked;
    asked.kind = api::Kind::chat;
    asked.sampling.logprobs = logprobs;
    return asked;
  }
  static Piece piece(const std::string& text, std::size_t tokens = 0, std::size_t logprobs = 0) {
    Piece made;
    made.text = text;
    made.choices.resize(tokens);
    for (Chosen& chosen : made.choices) chosen.likeliest.resize(logprobs);
    return made;
  }
  static Piece last() {
    Piece made;
    made.finish = Finish::stop;
    return made;
  }

  Metrics metrics;
  Unsent unsent{std::size_t{32} << 20};
  std::vector<Reply::Write> beside;
};

// An answer that could not be handed over is none: who waits for it is told why.
TEST_F(Replies, WhoseAnswerFoundNoMemoryAreToldSo) {
  const auto asked = ask(api::Ask());
  asked.exchange->wants_memory = true;
  EXPECT_THROW(asked.reply->take(0, last()), std::bad_alloc);
  asked.reply->let_go(429, no_memory());
  ASSERT_TRUE(asked.exchange->answered);
  EXPECT_EQ(asked.exchange->answered->status, 429);
  EXPECT_EQ(metrics.responses[429], 1U);
  EXPECT_FALSE(metrics.responses.contains(200));
}

TEST_F(Replies, WhatIsEchoedIsHeldLikeAllThatIsCollected) {
  api::Ask asked;
  asked.echoes = true;
  asked.answers = 4;
  const std::string text(std::size_t{4} << 20, 'x');
  const Asked first = ask(asked, "127.0.0.1", text);
  EXPECT_EQ(unsent.bytes(), 4 * text.size());
  const Asked second = ask(asked, "127.0.0.1", text);
  EXPECT_TRUE(first.reply->is_lost() || second.reply->is_lost()) << "an address has three quarters of it";
  EXPECT_EQ((first.reply->is_lost() ? first : second).exchange->answered->status, 429);
  EXPECT_LE(unsent.bytes(), 4 * text.size());
}

TEST_F(Replies, OfMoreLogprobsThanCanBeCollectedEndWhenTheyAreTooMany) {
  const auto asked = ask(with_logprobs(20));
  constexpr auto pieces = 8;
  const auto tokens = static_cast<std::size_t>(api::whole_logprobs_max) / 21 / pieces;
  for (int nth = 0; nth < pieces; ++nth) asked.reply->take(0, piece("a", tokens, 20));
  EXPECT_FALSE(asked.exchange->answered);
  EXPECT_GT(unsent.bytes(), sizeof(Logprob) * static_cast<std::size_t>(api::whole_logprobs_max) / 2);
  asked.reply->take(0, piece("a", tokens, 20));
  ASSERT_TRUE(asked.exchange->answered);
  EXPECT_EQ(asked.exchange->answered->status, 400);
  EXPECT_NE(asked.exchange->answered->body.find("stream it"), std::string::npos);
  EXPECT_TRUE(asked.reply->is_lost()) << "nobody wants the rest";
  EXPECT_EQ(unsent.bytes(), 0U) << "and nothing of it is kept";
  asked.reply->take(0, last());
}

TEST_F(Replies, OfWhichTooMuchIsCollectedTogetherAreRefused) {
  std::vector<Asked> all;
  const std::string text(std::size_t{3} << 20, 'x');
  for (int nth = 0; nth < 12; ++nth) {
    all.push_back(ask({}));
    all.back().reply->take(0, piece(text));
  }
  int refused = 0;
  for (const Asked& each : all) {
    if (!each.exchange->answered) continue;
    ++refused;
    EXPECT_EQ(each.exchange->answered->status, 429);
    EXPECT_GT(each.exchange->answered->retry_after_seconds, 0);
  }
  EXPECT_EQ(refused, 4) << "one address has three quarters of the room";
}

TEST_F(Replies, LargeOnesAreWrittenBesideTheLoop) {
  const auto asked = ask({});
  asked.reply->take(0, piece(std::string(written_on_loop_bytes_max + 1, 'x')));
  EXPECT_GT(unsent.bytes(), written_on_loop_bytes_max);
  asked.reply->take(0, last());
  EXPECT_FALSE(asked.exchange->answered);
  ASSERT_EQ(beside.size(), 1U);
  asked.reply->tell(beside[0]());
  ASSERT_TRUE(asked.exchange->answered);
  EXPECT_EQ(asked.exchange->answered->status, 200);
  EXPECT_GT(asked.exchange->answered->body.size(), written_on_loop_bytes_max);
  EXPECT_EQ(unsent.bytes(), asked.exchange->answered->body.size()) << "it is not read yet";

  const auto small = ask({});
  small.reply->take(0, piece("x"));
  small.reply->take(0, last());
  ASSERT_TRUE(small.exchange->answered) << "it is quicker at once";
  EXPECT_EQ(beside.size(), 1U);
}

TEST_F(Replies, ThatAreWholeAndNotReadMakeRoomForOthersOfTheirAddress) {
  std::vector<Asked> all;
  const std::string text(std::size_t{3} << 20, 'x');
  const auto finish = [&](const Asked& asked) {
    asked.reply->take(0, piece(text));
    asked.reply->take(0, last());
    asked.reply->tell(beside.back()());
    ASSERT_TRUE(asked.exchange->answered);
    EXPECT_EQ(asked.exchange->answered->status, 200);
  };
  const auto other = ask({}, "127.0.0.2");
  finish(other);
  for (int nth = 0; nth < 12; ++nth) {
    all.push_back(ask({}));
    finish(all.back());
  }
  const auto is_cut = [](const Asked& asked) { return asked.exchange->is_cut; };
  EXPECT_GT(std::ranges::count_if(all, is_cut), 3);
  EXPECT_FALSE(is_cut(all.back())) << "who has just come";
  EXPECT_FALSE(is_cut(other));
  EXPECT_LT(unsent.bytes(), std::size_t{28} << 20);
  all.clear();
  EXPECT_EQ(unsent.bytes(), other.exchange->answered->body.size()) << "who has read it holds nothing";
}

// A text that was held back is told by whoever resumes the answer, and here only if it ends here.
TEST_F(Replies, ThatMayBeResumedListTheTokensOfWhatIsTold) {
  const auto told = [](std::vector<Token> tokens, const std::string& text,
                       std::optional<Finish> finish = std::nullopt) {
    Piece made;
    made.tokens = std::move(tokens);
    made.text = text;
    made.finish = finish;
    return made;
  };
  for (const Finish end : {Finish::stop, Finish::lost, Finish::cancelled, Finish::failed}) {
    const auto asked = ask(streamed(), "127.0.0.1", "", true);
    const auto text = [&] { return std::exchange(asked.stream().text, {}); };
    asked.reply->take(0, told({17, 204}, "ab"));
    asked.stream().take();
    EXPECT_TRUE(text().starts_with(": tutti 17 204\ndata: {"));
    asked.reply->take(0, told({305}, ""));
    EXPECT_EQ(text(), "");
    asked.reply->take(0, told({4, 5}, "c"));
    asked.stream().take();
    EXPECT_TRUE(text().starts_with(": tutti 305 4 5\ndata: {"));
    asked.reply->take(0, told({6}, ""));
    asked.reply->take(0, told({}, "held", end));
    for (int writes = 0; asked.stream().under_way && writes < 4; ++writes) asked.stream().take();
    const std::string last = text();
    if (end == Finish::stop) {
      EXPECT_TRUE(last.starts_with(": tutti 6\ndata: {")) << last;
      EXPECT_NE(last.find("held"), std::string::npos);
      EXPECT_NE(last.find("\n\n: tutti\ndata: {"), std::string::npos) << "the reason has no token of its own";
    } else {
      EXPECT_EQ(last.find("tutti"), std::string::npos) << last;
      EXPECT_EQ(last.find("held"), std::string::npos);
      EXPECT_NE(last.find("error"), std::string::npos);
    }
    EXPECT_TRUE(last.ends_with("data: [DONE]\n\n"));
  }
  api::Ask echoing = streamed();
  echoing.echoes = true;
  api::Ask several = streamed();
  several.answers = 2;
  for (const api::Ask& other : {streamed(), echoing, several}) {
    const auto asked = ask(other, "127.0.0.1", "", other.echoes || other.answers > 1);
    asked.reply->take(0, told({17}, "a"));
    EXPECT_EQ(asked.stream().text.find("tutti"), std::string::npos);
  }
}

TEST_F(Replies, WhoseAnswerWasNotReadToItsEndAreCutOff) {
  const auto asked = ask({});
  asked.reply->take(0, last());
  EXPECT_FALSE(asked.reply->is_cut_off());
  asked.exchange->is_read = false;
  EXPECT_TRUE(asked.reply->is_cut_off());
}

TEST_F(Replies, OneForWhichThereIsNoRoomBesideTheLoopIsToldWhenToComeAgain) {
  auto exchange = std::make_shared<HeldExchange>("127.0.0.1");
  Reply reply(exchange, metrics, unsent, [](const Reply::Write&) { return false; });
  reply.begin({}, {""}, 1, api::Voice(api::Kind::completion, "id", 0, "tiny", nullptr), nullptr);
  reply.take(0, piece(std::string(written_on_loop_bytes_max + 1, 'x')));
  reply.take(0, last());
  ASSERT_TRUE(exchange->answered);
  EXPECT_EQ(exchange->answered->status, 429);
  EXPECT_GT(exchange->answered->retry_after_seconds, 0);
}

// Each of them has less waiting than one may have; together they have more.
TEST_F(Replies, TheSlowestReaderOfAnAddressMakesRoomForItsOthers) {
  constexpr std::size_t mebibyte = std::size_t{1} << 20;
  Unsent::Share most(unsent, "127.0.0.3", nullptr);
  ASSERT_TRUE(most.hold(25 * mebibyte));
  const auto slow = ask(streamed());
  const auto slower = ask(streamed());
  const auto other = ask(streamed(), "127.0.0.2");
  const auto quick = ask(streamed());
  for (const auto& each : {slow, slower, other, quick}) each.reply->take(0, piece("first"));
  other.reply->take(0, piece("of another address"));
  slow.reply->take(0, piece(std::string(2 * mebibyte, 'x')));
  slower.reply->take(0, piece(std::string(3 * mebibyte, 'x')));
  EXPECT_FALSE(slower.stream().is_cut);
  for (int nth = 0; nth < 3; ++nth) {
    quick.reply->take(0, piece(std::string(2 * mebibyte, 'x')));
    quick.stream().take();
  }
  EXPECT_TRUE(slower.stream().is_cut);
  EXPECT_TRUE(slower.reply->is_lost());
  EXPECT_FALSE(slow.stream().is_cut);
  EXPECT_FALSE(quick.stream().is_cut) << "who reads is no victim";
  EXPECT_FALSE(other.stream().is_cut);
  quick.reply->take(0, last());
  quick.stream().take();
  EXPECT_NE(quick.stream().text.find("[DONE]"), std::string::npos);
}

TEST_F(Replies, WhatWasWrittenOrLeftHoldsNothing) {
  {
    const auto read = ask(streamed());
    read.reply->take(0, piece("first"));
    read.reply->take(0, piece("second"));
    EXPECT_GT(unsent.bytes(), 0U);
    read.stream().take();
    EXPECT_EQ(unsent.bytes(), 0U) << "it is under way, and counted there";
    read.reply->take(0, piece("third"));
    EXPECT_GT(unsent.bytes(), 0U);
  }
  EXPECT_EQ(unsent.bytes(), 0U);
}

TEST_F(Replies, OfSlowReadersAreCutOffWhateverComesAfterwards) {
  const auto slow = ask(streamed());
  slow.reply->take(0, piece("first"));
  EXPECT_TRUE(slow.reply->is_cut_off()) << "who leaves now has not got all of it";
  slow.reply->take(0, piece(std::string(unread_bytes_max + 1, 'x')));
  EXPECT_TRUE(slow.stream().is_cut);
  Piece cancelled;
  cancelled.finish = Finish::cancelled;
  slow.reply->take(0, cancelled);
  EXPECT_TRUE(slow.reply->is_cut_off());
  EXPECT_FALSE(slow.reply->is_over());
  const auto quick = ask(streamed());
  quick.reply->take(0, last());
  EXPECT_FALSE(quick.reply->is_cut_off());
}

TEST_F(Replies, ThatAreStillWrittenWhenTheEngineEndsAreToldSo) {
  const auto asked = ask({});
  asked.reply->take(0, piece(std::string(written_on_loop_bytes_max + 1, 'x')));
  asked.reply->take(0, last());
  ASSERT_EQ(beside.size(), 1U);
  EXPECT_TRUE(asked.reply->is_cut_off());
  asked.reply->end(failed("this engine is about to stop"));
  ASSERT_TRUE(asked.exchange->answered);
  EXPECT_EQ(asked.exchange->answered->status, 503);
  EXPECT_FALSE(asked.reply->is_cut_off());
  asked.reply->tell(beside[0]());
}

}  // namespace
}  // namespace tutti::serve
