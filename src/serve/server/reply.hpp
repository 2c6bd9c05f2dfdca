// What becomes of one HTTP request: it waits to be prepared, its pieces come, and they go out as one answer
// or as a stream. Used by the server's loop only.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "base/clock/clock.hpp"
#include "net/http/http.hpp"
#include "serve/api/answer.hpp"
#include "serve/api/ask.hpp"
#include "serve/batch/batch.hpp"
#include "serve/server/entering.hpp"
#include "serve/server/metrics.hpp"
#include "serve/server/unsent.hpp"

namespace tutti::serve {

// What may wait for a reader who does not read; then the answer is cut off.
inline constexpr std::size_t unread_bytes_max = std::size_t{4} << 20;

// A whole answer of more is written beside the loop.
inline constexpr std::size_t written_on_loop_bytes_max = std::size_t{1} << 20;

// For those whose answer was cut off by the end of this engine or of its model, or found no room.
inline constexpr int lost_retry_after_seconds = 1;

class Reply : public std::enable_shared_from_this<Reply> {
 public:
  using Write = std::function<Result<std::string>()>;
  // Beside the loop, and then told on it. False if too many wait for that already.
  using Beside = std::function<bool(Write)>;

  // What it is given outlives it.
  Reply(std::shared_ptr<net::Exchange> exchange, Metrics& metrics, Unsent& unsent, Beside beside);

  const net::Request& request() const { return exchange_->request(); }
  std::size_t body_bytes() const { return exchange_->request().body.size(); }

  // One of these two ends it before anything is generated, or begins it.
  void refuse(int status, const Error& error, std::string_view code = {}, int retry_after_seconds = 0);
  // `on_close` runs on the loop when the other side of a stream has gone or has got all of it.
  void begin(const api::Ask& ask, std::vector<std::string> begins, std::int64_t prompt_tokens,
             api::Voice voice, std::function<void()> on_close);

  void take(std::size_t request, Piece piece);
  // A whole answer, when it is written.
  void tell(Result<std::string> text);
  // Nothing more comes of it: it is refused, or ends as far as it has come, with this error.
  void end(const Error& error);
  // There is no room for it: a stream is cut off, a whole answer is refused.
  void let_go(int status, const Error& error);
  // It was let go, because the other side reads too slowly or for want of room: nobody wants the rest.
  bool is_lost() const { return is_lost_; }
  bool is_over() const { return is_over_; }
  // Its prompts come into the engine one after the other.
  bool is_in_turns() const { return is_embedding_; }
  // Whatever the engine still computes for it.
  bool is_in_vain() const { return is_lost_ || (is_over_ && parts_left_ > 0); }
  // Should its client leave now, it has left before the end, or was made to.
  bool is_cut_off() const {
    return stream_ ? is_lost_ || !is_over_ : !is_answered_ || !exchange_->is_written();
  }

  std::optional<Entering> entering;  // from when it is prepared
  std::stop_source left;             // its client has, and what is prepared for it is in vain
  bool holds_body = false;           // its body is counted

 private:
  struct Part {
    api::Answer answer;
    std::size_t letters = 0;  // of its tokens so far
  };

  bool may_be_resumed(const api::Ask& ask) const;

  void respond(net::Response response);
  void note_times(std::size_t tokens);
  void echo(std::size_t request, const std::vector<Chosen>& choices);
  void say(std::size_t part, const Piece& piece);
  void tell_chunk(std::string chunk);
  void collect(Part& part, const Piece& piece);
  void finish();
  void finish_whole();
  void write(std::string text);
  void written();
  void cut();

  std::shared_ptr<net::Exchange> exchange_;
  Metrics& metrics_;
  const Beside beside_;
  Unsent::Share share_;  // of what is collected or not written yet, of a whole answer until it is read
  std::optional<api::Voice> voice_;
  bool with_logprobs_ = false;
  bool usage_in_stream_ = false;
  bool is_embedding_ = false;
  bool in_base64_ = false;
  bool lists_tokens_ = false;
  std::vector<Token> unlisted_;      // that were told with no chunk yet
  bool is_echo_alone_ = false;       // what follows the prompt is not told
  std::vector<std::string> echoes_;  // of a stream whose prompts come with their logprobs
  std::size_t answers_ = 1;          // of each request
  std::vector<Part> parts_;
  std::size_t parts_left_ = 0;
  std::int64_t logprobs_ = 0;  // of a whole answer, so far
  api::Usage usage_;
  std::optional<Error> failure_;
  int failure_status_ = 500;

  std::shared_ptr<net::Stream> stream_;
  bool is_writing_ = false;
  std::string unwritten_;  // until what is being written is gone
  bool is_ending_ = false;
  bool is_lost_ = false;
  bool is_over_ = false;
  bool is_answered_ = false;

  SteadyClock::time_point asked_at_;
  std::optional<SteadyClock::time_point> token_at_;  // the last one
};

}  // namespace tutti::serve
