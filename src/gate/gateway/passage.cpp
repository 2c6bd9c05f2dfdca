#include "gate/gateway/passage.hpp"

#include <algorithm>
#include <utility>

#include "serve/api/answer.hpp"
#include "serve/infer/answer.hpp"
#include "serve/server/front.hpp"

namespace tutti::gate {
namespace {

constexpr int retry_after_seconds = 1;
constexpr int status_min = 200;  // of what answers a request
constexpr int status_max = 599;
constexpr const char* binary_length_header = "inference-header-content-length";

// Another one may have room, or be there.
bool is_for_another(Protocol protocol, int status) {
  return status == 429 || (status >= 502 && status <= 504) ||
         (protocol == Protocol::inference && status == 404);
}

// He does not take our key: that is no answer to the client's.
bool refuses_us(int status) { return status == 401 || status == 403; }

bool is_answer(int status) { return status >= status_min && status <= status_max; }

// What net/http/caller says of a connection that was open, and of the request that went out on it.
bool may_have_arrived(const Error& problem) {
  return problem.message() == "it closed the connection" ||
         problem.message() == "it has not answered in time";
}

}  // namespace

net::Response refusal_of(Protocol protocol, int status, const Error& error, std::string_view code) {
  return {.status = status,
          .body = protocol == Protocol::openai ? serve::api::error_text(status, error, code)
                                               : serve::infer::error_text(error),
          .retry_after_seconds = status == 503 || status == 429 ? retry_after_seconds : 0};
}

net::Response refusal_of_unknown(Protocol protocol, const std::string& model) {
  const Error error = model.empty() ? invalid("is missing, and several models are served here")
                                    : invalid("no engine here serves '" + model.substr(0, 256) + "'");
  return refusal_of(protocol, 404, Error(error).within("model").remedy("/v1/models lists what is served"),
                    "model_not_found");
}

Passage::Passage(House& house, std::shared_ptr<net::Exchange> exchange, Errand errand,
                 std::function<void()> over)
    : house_(house),
      exchange_(std::move(exchange)),
      errand_(std::move(errand)),
      wanted_{.protocol = errand_.protocol, .model = errand_.model},
      over_(std::move(over)),
      asked_at_(SteadyClock::now()),
      story_(errand_.ask.may_go_on, errand_.wants_comments),
      wait_left_(house.wait_time_max) {}

Passage::~Passage() {
  give_turn_back();
  drop_collected();
}

void Passage::begin() { attempt(); }

std::int64_t Passage::tokens() const {
  if (!story_.has_begun()) return told_tokens_;
  return errand_.ask.prompt_tokens + static_cast<std::int64_t>(std::max(story_.tokens(), story_.events()));
}

void Passage::look_again() {
  if (!is_waiting_) return;
  tried_.clear();
  attempt();
}

void Passage::leave(BackendId backend) {
  if (!turn_ || turn_->backend != backend || is_answered_ || story_.is_whole()) return;
  if (SteadyClock::now() - heard_at_ < house_.backends.looking().time_max) return;
  if (story_.has_begun() && !story_.can_go_on()) return;  // he may come back
  ask_another("it does not answer any more", Fault::death);
}

void Passage::attempt() {
  again_.reset();
  const Burden burden{
      errand_.ask.prompt_tokens,
      std::max<std::int64_t>(errand_.ask.answer_tokens - static_cast<std::int64_t>(story_.tokens()), 0),
      errand_.ask.marks};
  if (!std::exchange(is_drawn_, true)) wanted_.version = house_.backends.draw(errand_.model);
  turn_ = house_.backends.choose(wanted_, burden, tried_);
  if (!turn_) return wait();
  stop_waiting();
  call();
}

// All who could be asked were, and are full, or nobody can be asked now.
void Passage::wait() {
  const bool is_told = refusal_ && (refusal_->status == 429 || refusal_->status == 404);
  if (is_told && !story_.has_begun()) return answer(std::move(*refusal_));
  if (!story_.has_begun() && house_.backends.is_settled() &&
      !house_.backends.knows(errand_.protocol, errand_.model))
    return answer(refusal_of_unknown(errand_.protocol, errand_.model));
  if (story_.has_begun() && !house_.backends.may_come(wanted_)) {
    ++house_.counts.streams_broken;
    return end(502, failed("the engine broke off, and there is no other one of its version any more"));
  }
  if (!is_waiting_ && wait_left_ <= 0ms) return refuse_waiting();
  // Who is full, or not ready, may be asked again sooner than he is looked at.
  if (refusal_) {
    tried_.clear();
    again_ = house_.loop.after(full_pause, [this] { attempt(); });
  }
  if (std::exchange(is_waiting_, true)) return;
  waits_since_ = SteadyClock::now();
  deadline_ = house_.loop.after(wait_left_, [this] { refuse_waiting(); });
  if (house_.waits) house_.waits(errand_.model);
}

// Somebody is asked: what has been waited is gone until he has said something.
void Passage::stop_waiting() {
  if (std::exchange(is_waiting_, false)) wait_left_ -= SteadyClock::now() - waits_since_;
  deadline_.reset();
  again_.reset();
}

void Passage::refuse_waiting() {
  if (refusal_ && !story_.has_begun()) return answer(std::move(*refusal_));
  end(503, failed("nobody who serves this model can be asked now").remedy("ask again in a while"));
}

void Passage::call() {
  net::Outgoing outgoing{.method = errand_.method,
                         .path = errand_.path,
                         .headers = errand_.headers,
                         .wants = {binary_length_header},
                         .head_time_max = errand_.ask.streams ? stream_head_time_max : answer_head_time_max,
                         .pause_time_max = pause_time_max,
                         .answer_bytes_max = answer_bytes_max};
  const std::string& body = exchange_->request().body;
  if (errand_.method == "POST") {
    const std::string rest = story_.rest();
    outgoing.body = rest.empty() ? net::Text(exchange_, &body)  // it lives as long as the exchange
                                 : net::make_text(with_member(body, resume_member, rest));
  }
  if (errand_.ask.may_go_on || errand_.wants_comments) outgoing.headers[resumable_header] = "1";
  // Servers of others learn nothing of our clients.
  if (!turn_->service.empty()) outgoing.headers[serve::asker_header] = errand_.asker;
  is_stream_ = false;
  head_ = {};
  called_at_ = SteadyClock::now();
  heard_at_ = called_at_;
  const auto self = weak_from_this();
  call_ = house_.backends.call(turn_->backend, std::move(outgoing),
                               {.on_head =
                                    [self](net::AnswerHead head) {
                                      if (const auto passage = self.lock())
                                        passage->take_head(std::move(head));
                                    },
                                .on_piece =
                                    [self](const std::string& piece) {
                                      if (const auto passage = self.lock()) passage->take_piece(piece);
                                    },
                                .over =
                                    [self](const Result<>& end) {
                                      if (const auto passage = self.lock()) passage->take_end(end);
                                    }});
}

void Passage::take_head(net::AnswerHead head) {
  head_ = std::move(head);
  heard_at_ = SteadyClock::now();
  is_stream_ = head_.status == 200 && head_.type.starts_with("text/event-stream");
  if (is_answer(head_.status) && !is_for_another(errand_.protocol, head_.status) && !refuses_us(head_.status))
    house_.backends.worked(turn_->backend);
}

void Passage::take_piece(const std::string& piece) {
  if (is_answered_) return;
  heard_at_ = SteadyClock::now();
  if (is_stream_) return take_story(piece);
  if (house_.collected_bytes + piece.size() > answers_bytes_max)
    return answer(
        refusal_of(errand_.protocol, 429, failed("too many large answers are under way"), "overloaded"));
  house_.collected_bytes += piece.size();
  collected_bytes_ += piece.size();
  collected_ += piece;
}

void Passage::take_story(const std::string& piece) {
  auto out = story_.take(piece);
  if (!out) return ask_another(out.error().text(), Fault::death);
  if (!out->empty()) {
    wait_left_ = house_.wait_time_max;
    // What follows is this version's, too.
    wanted_.version = turn_->version;
    wanted_.is_only_version = true;
    note_first_byte();
    write(std::move(*out));
  }
  if (story_.is_given_up()) return ask_another("it is about to stop", Fault::away);
  if (story_.is_whole() && !deadline_)
    deadline_ = house_.loop.after(stream_end_time_max, [this] { end_whole_stream(); });
}

void Passage::take_end(const Result<>& end) {
  if (is_answered_) return give_turn_back();
  // Whatever becomes of whoever has told all of it.
  if (story_.is_whole()) return end_whole_stream();
  if (!end) {
    const bool is_death = head_.status != 0 || may_have_arrived(end.error());
    return ask_another(end.error().text(), is_death ? Fault::death : Fault::away);
  }
  if (!is_stream_) return tell_whole();
  ask_another("it broke off in the middle of a stream", Fault::death);
}

void Passage::tell_whole() {
  if (!is_answer(head_.status))
    return ask_another("it answers with the status " + std::to_string(head_.status), Fault::death);
  if (refuses_us(head_.status)) return ask_another("it refuses the gateway's key", Fault::death);
  if (head_.status == 200 && errand_.protocol == Protocol::openai) told_tokens_ = told_tokens(collected_);
  net::Response response{.status = head_.status,
                         .body = std::move(collected_),
                         .type = head_.type,
                         .retry_after_seconds = head_.retry_after_seconds,
                         .headers = head_.headers};
  if (is_for_another(errand_.protocol, head_.status)) {
    refusal_ = std::move(response);
    return ask_another("", Fault::none);
  }
  // What is wrong with the rest of a story was not wrong with its beginning.
  if (story_.has_begun())
    return ask_another("it does not go on with a stream: " + std::to_string(head_.status), Fault::none);
  note_answer(response.status >= 500);
  give_turn_back();
  answer(std::move(response));
}

// Of a replica's service, for the controller. Who is on his way out fails as he was asked to.
void Passage::note_answer(bool is_failure) {
  if (turn_->service.empty() || (is_failure && house_.backends.is_leaving(turn_->backend))) return;
  house_.tallies.answered({turn_->service, turn_->version}, is_failure);
}

void Passage::ask_another(const std::string& problem, Fault fault) {
  const BackendId before = turn_->backend;
  if (fault != Fault::none && !story_.is_given_up()) note_answer(true);
  give_turn_back();
  drop_collected();
  tried_.insert(before);
  if (fault != Fault::none) house_.backends.failed(before, problem);
  if (fault == Fault::death) ++deaths_;
  if (story_.has_begun() && !story_.can_go_on()) {
    ++house_.counts.streams_broken;
    return end(502, failed("the engine broke off, and no other one can go on with this answer"));
  }
  if (deaths_ >= deaths_max)
    return end(502, failed("all engines that were asked broke off, the last one because: " + problem));
  ++(story_.has_begun() ? house_.counts.streams_continued : house_.counts.asked_again);
  story_.begin_again();
  attempt();
}

void Passage::give_turn_back() {
  call_.reset();
  if (turn_) house_.backends.done(*turn_);
  turn_.reset();
}

void Passage::drop_collected() {
  house_.collected_bytes -= std::exchange(collected_bytes_, 0);
  std::string().swap(collected_);
}

void Passage::end(int status, const Error& error) {
  if (is_answered_) return;
  if (story_.is_whole()) return end_whole_stream();
  give_turn_back();
  if (!stream_) return answer(refusal_of(errand_.protocol, status, error));
  write(serve::api::error_event(status, error) + std::string(serve::api::last_event));
  end_stream();
}

void Passage::note_first_byte() {
  if (std::exchange(is_first_byte_noted_, true)) return;
  const auto now = SteadyClock::now();
  house_.counts.first_byte.add(in_seconds(now - asked_at_));
  if (is_stream_ && turn_ && !turn_->service.empty())
    house_.tallies.first_token({turn_->service, turn_->version}, now - called_at_);
}

void Passage::answer(net::Response response) {
  if (std::exchange(is_answered_, true)) return;
  stop_waiting();
  give_turn_back();
  drop_collected();
  note_first_byte();
  ++house_.counts.responses[response.status];
  exchange_->answer(std::move(response));
}

// One piece is under way; what comes meanwhile is collected and goes out together.
void Passage::write(std::string text) {
  if (!stream_) {
    ++house_.counts.responses[200];
    stream_ = exchange_->stream([self = weak_from_this()] {
      if (const auto passage = self.lock()) passage->closed();
    });
  }
  if (is_writing_) {
    unwritten_ += text;
    if (unwritten_.size() > unread_bytes_max && call_) call_->pause();
    return;
  }
  is_writing_ = true;
  stream_->write(std::move(text), [self = weak_from_this()] {
    if (const auto passage = self.lock()) passage->written();
  });
}

void Passage::written() {
  is_writing_ = false;
  if (!unwritten_.empty()) {
    write(std::exchange(unwritten_, {}));
    if (call_) call_->go_on();
  } else if (is_ending_) {
    stream_->close();
  }
}

void Passage::end_stream() {
  if (!stream_) return answer(refusal_of(errand_.protocol, 502, failed("the engine has said nothing")));
  is_answered_ = true;
  is_ending_ = true;
  stop_waiting();
  if (!is_writing_) stream_->close();
}

void Passage::end_whole_stream() {
  note_answer(false);
  give_turn_back();
  end_stream();
}

void Passage::closed() {
  if (!is_answered_) ++house_.counts.cut_off;
  house_.counts.whole_request.add(in_seconds(SteadyClock::now() - asked_at_));
  is_answered_ = true;
  stop_waiting();
  give_turn_back();
  if (const auto over = std::exchange(over_, nullptr)) over();
}

}  // namespace tutti::gate
