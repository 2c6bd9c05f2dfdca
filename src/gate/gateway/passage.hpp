// One request on its way: somebody is chosen, asked, and what he says goes back; where he cannot be reached,
// is full or dies, another one is asked, in the middle of a stream for the rest of it. Used by the gateway's
// loop only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "base/clock/clock.hpp"
#include "gate/ask/ask.hpp"
#include "gate/gateway/backends.hpp"
#include "gate/gateway/counts.hpp"
#include "gate/route/tallies.hpp"
#include "gate/story/story.hpp"
#include "net/http/caller.hpp"
#include "net/http/http.hpp"

namespace tutti::gate {

// A request that so many have died of is given up: it may be its fault. Whoever was not there has not died of
// it.
inline constexpr int deaths_max = 3;
// What waits for a reader before nothing more is read for him.
inline constexpr std::size_t unread_bytes_max = std::size_t{1} << 20;
// Of a whole answer, and of all of them together.
inline constexpr std::size_t answer_bytes_max = std::size_t{192} << 20;
inline constexpr std::size_t answers_bytes_max = std::size_t{512} << 20;
// Until a stream begins; an answer that comes as a whole is computed before it begins.
inline constexpr Duration stream_head_time_max = 60s;
inline constexpr Duration answer_head_time_max = 15min;
inline constexpr Duration pause_time_max = 10min;
// From the last event of a stream to the end of the answer that has it.
inline constexpr Duration stream_end_time_max = 1s;
// How soon those who are full are asked again to go on with a stream.
inline constexpr Duration full_pause = 500ms;

// What is asked, whoever is asked.
struct Errand {
  Protocol protocol = Protocol::openai;
  std::string method = "POST";
  std::string path;
  std::string model;
  Ask ask;
  std::map<std::string, std::string> headers = {};
  bool wants_comments = false;  // the client asks for the tokens, too
  std::string asker;            // between whom the order is fair: a key, or an address
  std::int64_t priority = 0;    // of two who wait, the higher one goes first
};

// What all of them share.
struct House {
  net::Loop& loop;
  Backends& backends;
  Counts& counts;
  Tallies& tallies;
  Duration wait_time_max{};                             // for somebody who can be asked
  std::function<void(const std::string& model)> waits;  // one has begun to
  std::size_t collected_bytes = 0;                      // of whole answers that are not told yet
};

class Passage : public std::enable_shared_from_this<Passage> {
 public:
  // `over` runs when nothing is left of it but what the client still reads.
  Passage(House& house, std::shared_ptr<net::Exchange> exchange, Errand errand, std::function<void()> over);
  ~Passage();
  Passage(const Passage&) = delete;
  Passage& operator=(const Passage&) = delete;

  void begin();
  bool is_waiting() const { return is_waiting_; }
  // And not for one of its version alone.
  bool waits_for_anybody() const { return is_waiting_ && (wanted_.version == 0 || !wanted_.is_only_version); }
  Protocol protocol() const { return errand_.protocol; }
  const std::string& model() const { return errand_.model; }
  std::int64_t priority() const { return errand_.priority; }
  // What it has taken so far, prompt and all: as it was told, or about.
  std::int64_t tokens() const;
  // Somebody can be asked who could not be before.
  void look_again();
  // He does not answer those who look at him: where he says nothing here, either, another one is asked, if
  // that is possible.
  void leave(BackendId backend);
  // Nothing more comes of it: it is refused, or ends as far as it has come.
  void end(int status, const Error& error);
  // The other side has all of it, or has gone.
  void closed();

 private:
  // Of whoever was asked before another one is.
  enum class Fault {
    none,   // he has answered that somebody else is to be asked
    away,   // he could not be reached, or goes
    death,  // he had the request, and broke off
  };

  void attempt();
  void wait();
  void stop_waiting();
  void refuse_waiting();
  void note_answer(bool is_failure);
  void call();
  void take_head(net::AnswerHead head);
  void take_piece(const std::string& piece);
  void take_end(const Result<>& end);
  void take_story(const std::string& piece);
  void tell_whole();
  void ask_another(const std::string& problem, Fault fault);
  void give_turn_back();
  void drop_collected();
  void answer(net::Response response);
  void note_first_byte();

  void write(std::string text);
  void written();
  void end_stream();
  void end_whole_stream();

  House& house_;
  const std::shared_ptr<net::Exchange> exchange_;
  const Errand errand_;
  Wanted wanted_;
  bool is_drawn_ = false;  // the version, of which there may be any
  std::function<void()> over_;
  const SteadyClock::time_point asked_at_;

  // Of whoever is asked now:
  std::optional<Backends::Turn> turn_;
  std::unique_ptr<net::Call> call_;
  net::AnswerHead head_;
  SteadyClock::time_point called_at_;
  SteadyClock::time_point heard_at_;  // when he was asked, or has said something last
  bool is_stream_ = false;
  std::string collected_;
  std::size_t collected_bytes_ = 0;  // that count for it

  Story story_;
  std::set<BackendId> tried_;
  std::optional<net::Response> refusal_;  // the last one
  std::int64_t told_tokens_ = 0;          // by a whole answer
  int deaths_ = 0;
  bool is_waiting_ = false;
  SteadyClock::time_point waits_since_;
  Duration wait_left_;                           // until something has come of it
  std::shared_ptr<net::Loop::Handle> deadline_;  // while it waits, or when all has been told
  std::shared_ptr<net::Loop::Handle> again_;

  std::shared_ptr<net::Stream> stream_;
  bool is_writing_ = false;
  std::string unwritten_;
  bool is_ending_ = false;
  bool is_answered_ = false;  // or all of the stream is written
  bool is_first_byte_noted_ = false;
};

// Nobody serves a model of this name.
net::Response refusal_of_unknown(Protocol protocol, const std::string& model);
// In the words of the protocol.
net::Response refusal_of(Protocol protocol, int status, const Error& error, std::string_view code = {});

}  // namespace tutti::gate
