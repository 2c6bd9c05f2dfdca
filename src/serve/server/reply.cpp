#include "serve/server/reply.hpp"

#include <algorithm>

#include "base/check.hpp"
#include "serve/program/within_memory.hpp"

namespace tutti::serve {
namespace {

// Of text, about: a logprob with its token, a number of a vector.
constexpr std::size_t logprob_text_bytes = 64;
constexpr std::size_t number_text_bytes = 12;

std::size_t logprobs_of(const Chosen& chosen) { return 1 + chosen.likeliest.size(); }

// That are kept of a piece.
std::size_t bytes_of(std::string_view text, const std::vector<Chosen>& choices) {
  std::size_t bytes = text.size();
  for (const Chosen& chosen : choices)
    bytes +=
        sizeof(Chosen) + chosen.likeliest.size() * sizeof(Logprob) + chosen.hidden.size() * sizeof(float);
  return bytes;
}

// A whole answer that is not text yet.
struct Whole {
  api::Voice voice;
  api::Usage usage;
  std::vector<api::Answer> answers = {};
  bool is_embedding = false;
  bool in_base64 = false;

  // About so many.
  std::size_t text_bytes() const {
    std::size_t bytes = 0;
    for (const api::Answer& answer : answers) {
      bytes += answer.text.size();
      for (const Chosen& chosen : answer.choices)
        bytes += is_embedding ? chosen.hidden.size() * number_text_bytes
                              : logprobs_of(chosen) * logprob_text_bytes;
    }
    return bytes;
  }
  Result<std::string> text() const {
    return within_memory_of_errand([&]() -> Result<std::string> {
      return is_embedding ? voice.embeddings(answers, usage, in_base64) : voice.whole(answers, usage);
    });
  }
};

}  // namespace

Reply::Reply(std::shared_ptr<net::Exchange> exchange, Metrics& metrics, Unsent& unsent, Beside beside)
    : exchange_(std::move(exchange)),
      metrics_(metrics),
      beside_(std::move(beside)),
      share_(unsent, exchange_->request().remote,
             [this] {
               if (is_answered_) return exchange_->cut();
               let_go(429, failed("too much is kept for answers that were not read, and for large ones")
                               .remedy("ask again in a while, or for less at a time"));
             }),
      asked_at_(SteadyClock::now()) {}

void Reply::refuse(int status, const Error& error, std::string_view code, int retry_after_seconds) {
  is_over_ = true;
  respond({.status = status,
           .body = api::error_text(status, error, code),
           .retry_after_seconds = retry_after_seconds});
}

void Reply::respond(net::Response response) {
  if (is_answered_) return;
  const int status = response.status;
  exchange_->answer(std::move(response));
  is_answered_ = true;  // then only: where there was no memory for it, another answer says so
  ++metrics_.responses[status];
}

void Reply::let_go(int status, const Error& error) {
  if (stream_) return cut();
  is_lost_ = true;
  parts_.clear();
  share_.release();
  refuse(status, error, status == 429 ? "overloaded" : "", status == 429 ? lost_retry_after_seconds : 0);
}

void Reply::cut() {
  is_lost_ = true;
  std::string().swap(unwritten_);
  share_.release();
  stream_->cut();
}

// One answer, all of which the tokens of it tell again; who asks for them says so.
bool Reply::may_be_resumed(const api::Ask& ask) const {
  const auto& headers = request().headers;
  const auto header = headers.find(std::string(api::resumable_header));
  return ask.streams && parts_.size() == 1 && !ask.echoes && header != headers.end() &&
         header->second == api::resumable_value;
}

void Reply::begin(const api::Ask& ask, std::vector<std::string> begins, std::int64_t prompt_tokens,
                  api::Voice voice, std::function<void()> on_close) {
  voice_.emplace(std::move(voice));
  with_logprobs_ = ask.wants_logprobs();
  usage_in_stream_ = ask.usage_in_stream;
  is_embedding_ = ask.kind == api::Kind::embedding;
  in_base64_ = ask.in_base64;
  is_echo_alone_ = ask.echoes && ask.tokens_max == 0;
  answers_ = static_cast<std::size_t>(ask.answers);
  usage_.prompt_tokens = prompt_tokens;
  parts_.resize(begins.size() * answers_);
  parts_left_ = parts_.size();
  lists_tokens_ = may_be_resumed(ask);
  const bool is_resumed = ask.resume && !ask.resume->tokens.empty();
  if (is_resumed) {
    usage_.completion_tokens = static_cast<std::int64_t>(ask.resume->tokens.size());
    parts_.front().letters = voice_->letters_of(ask.resume->tokens);
  }
  if (ask.streams) {
    ++metrics_.responses[200];
    stream_ = exchange_->stream(std::move(on_close));
  }
  for (std::size_t at = 0; at < parts_.size(); ++at) {
    const std::string& text = begins[at / answers_];
    if (!ask.streams) {
      if (!share_.hold(text.size())) return;
      parts_[at].answer.text = text;
    }
    const auto answer = static_cast<std::int32_t>(at);
    if (ask.streams && ask.kind == api::Kind::chat && !is_resumed) write(voice_->first_chunk(answer));
    if (ask.streams && !text.empty() && !with_logprobs_)
      write(voice_->chunk(answer, text, {}, false, 0, nullptr));
  }
  if (ask.streams && with_logprobs_) echoes_ = std::move(begins);
}

void Reply::note_times(std::size_t tokens) {
  if (tokens == 0) return;
  const auto now = SteadyClock::now();
  if (!token_at_) {
    metrics_.first_token.add(in_seconds(now - asked_at_));
    --tokens;
  }
  if (tokens > 0) {
    const double seconds = in_seconds(now - token_at_.value_or(now));
    metrics_.next_token.add(seconds / static_cast<double>(tokens), tokens);
  }
  token_at_ = now;
}

void Reply::take(std::size_t request, Piece piece) {
  if (is_over_ || is_lost_) return;
  const std::size_t at = request * answers_ + static_cast<std::size_t>(piece.answer);
  TUTTI_CHECK(at < parts_.size());
  Part& part = parts_[at];
  note_times(piece.tokens.size());
  if (!piece.prompt_choices.empty()) echo(request, piece.prompt_choices);
  if (is_over_) return;  // there was no room for it
  if (is_echo_alone_) {
    piece.tokens.clear();
    piece.choices.clear();
    piece.text.clear();
    if (piece.finish == Finish::stop) piece.finish = Finish::length;
  }
  usage_.completion_tokens += static_cast<std::int64_t>(piece.tokens.size());
  if (piece.finish) {
    --parts_left_;
    usage_.cached_tokens += piece.answer == 0 ? piece.cached_tokens : 0;
    if (*piece.finish == Finish::failed && !failure_)
      failure_ = failed("this could not be answered: " + piece.problem);
    if (*piece.finish == Finish::lost && !failure_) {
      failure_ = failed("this could not be answered: " + piece.problem).remedy("ask again in a while");
      failure_status_ = 503;
    }
    if (*piece.finish == Finish::cancelled && !failure_) {
      failure_ = failed("this engine is about to stop").remedy("ask another one");
      failure_status_ = 503;
    }
  }
  if (stream_) {
    say(at, piece);
  } else if (failure_) {
    return finish();  // whatever becomes of the others
  } else {
    collect(part, piece);
  }
  if (parts_left_ == 0 && !is_over_) finish();
}

void Reply::collect(Part& part, const Piece& piece) {
  for (const Chosen& chosen : piece.choices) logprobs_ += static_cast<std::int64_t>(logprobs_of(chosen));
  if (logprobs_ > api::whole_logprobs_max) return let_go(400, api::too_many_logprobs());
  if (!share_.hold(bytes_of(piece.text, piece.choices))) return;
  part.answer.text += piece.text;
  part.answer.choices.insert(part.answer.choices.end(), piece.choices.begin(), piece.choices.end());
  if (piece.finish) part.answer.finish = *piece.finish;
}

void Reply::end(const Error& error) {
  if (is_lost_ || (is_over_ && stream_)) return;
  // Also where it is over: what is written of it beside the loop may not come.
  if (is_over_ || !voice_) return refuse(503, error, {}, lost_retry_after_seconds);
  if (!failure_) {
    failure_ = error;
    failure_status_ = 503;
  }
  finish();
}

// The logprobs of a prompt, for all answers to it: they have said nothing yet.
void Reply::echo(std::size_t request, const std::vector<Chosen>& choices) {
  std::vector<Token> tokens;
  tokens.reserve(choices.size());
  for (const Chosen& chosen : choices) tokens.push_back(chosen.token);
  for (std::size_t at = request * answers_; at < (request + 1) * answers_; ++at) {
    if (!stream_) {
      for (const Chosen& chosen : choices) logprobs_ += static_cast<std::int64_t>(logprobs_of(chosen));
      if (!share_.hold(bytes_of({}, choices))) return;
      parts_[at].answer.choices = choices;
      continue;
    }
    write(voice_->chunk(static_cast<std::int32_t>(at), echoes_[request], choices, true, 0, nullptr));
    parts_[at].letters = voice_->letters_of(tokens);
  }
}

void Reply::say(std::size_t at, const Piece& piece) {
  const bool is_whole = piece.finish && (*piece.finish == Finish::stop || *piece.finish == Finish::length);
  if (lists_tokens_) {
    unlisted_.insert(unlisted_.end(), piece.tokens.begin(), piece.tokens.end());
    // It is not over, and may go on elsewhere: what was held back until it is sure is told there.
    if (piece.finish && !is_whole) return;
  }
  if (piece.text.empty() && piece.choices.empty() && !is_whole) return;
  Part& part = parts_[at];
  const auto answer = static_cast<std::int32_t>(at);
  const Finish* const end = is_whole ? &*piece.finish : nullptr;
  // The reason stands in a chunk of its own, as clients have learned to expect it.
  if (!piece.text.empty() || !piece.choices.empty())
    tell_chunk(voice_->chunk(answer, piece.text, piece.choices, with_logprobs_, part.letters, nullptr));
  if (end != nullptr) tell_chunk(voice_->chunk(answer, "", {}, false, 0, end));
  part.letters += voice_->letters_of(piece.tokens);
}

void Reply::tell_chunk(std::string chunk) {
  if (!lists_tokens_) return write(std::move(chunk));
  write(api::tokens_line(unlisted_) + chunk);
  unlisted_.clear();
}

void Reply::finish() {
  is_over_ = true;
  metrics_.whole_request.add(in_seconds(SteadyClock::now() - asked_at_));
  if (is_embedding_ && !failure_) {
    const auto has_none = [](const Part& part) {
      return part.answer.choices.empty() || part.answer.choices.front().hidden.empty();
    };
    if (std::any_of(parts_.begin(), parts_.end(), has_none)) {
      failure_ = failed("the device of this model gives no embeddings").remedy("take --device cpu");
      failure_status_ = 501;
    }
  }
  if (!stream_) return finish_whole();
  if (failure_) write(api::error_event(failure_status_, *failure_));
  if (!failure_ && usage_in_stream_) write(voice_->usage_chunk(usage_));
  write(std::string(api::last_event));
  is_ending_ = true;
  if (!is_writing_) stream_->close();
}

void Reply::finish_whole() {
  if (failure_) {
    return respond({.status = failure_status_,
                    .body = api::error_text(failure_status_, *failure_),
                    .retry_after_seconds = failure_status_ == 503 ? lost_retry_after_seconds : 0});
  }
  auto whole = std::make_shared<Whole>(
      Whole{.voice = *voice_, .usage = usage_, .is_embedding = is_embedding_, .in_base64 = in_base64_});
  whole->answers.reserve(parts_.size());
  for (Part& part : parts_) whole->answers.push_back(std::move(part.answer));
  if (whole->text_bytes() <= written_on_loop_bytes_max) return tell(whole->text());
  if (!beside_([whole] { return whole->text(); })) tell(failed("too many answers wait already"));
}

void Reply::tell(Result<std::string> text) {
  share_.release();
  if (is_answered_) return;
  if (text) {
    // Until it is read it counts for its address, like what was collected for it.
    if (!share_.hold(text->size())) return;
    return respond({.body = std::move(*text)});
  }
  respond({.status = 429,
           .body = api::error_text(429, text.error(), "overloaded"),
           .retry_after_seconds = lost_retry_after_seconds});
}

// One chunk is under way; what comes meanwhile is collected and goes out together.
void Reply::write(std::string text) {
  if (is_lost_) return;
  if (is_writing_) {
    if (!share_.hold(text.size())) return;
    unwritten_ += text;
    if (unwritten_.size() > unread_bytes_max) cut();
    return;
  }
  is_writing_ = true;
  stream_->write(std::move(text), [self = weak_from_this()] {
    if (const auto reply = self.lock()) reply->written();
  });
}

void Reply::written() {
  is_writing_ = false;
  if (!unwritten_.empty()) {
    share_.release();
    write(std::exchange(unwritten_, {}));
  } else if (is_ending_) {
    stream_->close();
  }
}

}  // namespace tutti::serve
