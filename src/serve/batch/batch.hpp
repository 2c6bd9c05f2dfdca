// Who is computed next, and what comes of it: requests in, steps of a model out, tokens back, pieces of
// answers out.
//
//   submit ─▶ (resumed ─▶) waiting ─▶ running ─▶ finished    plan() ─▶ the model computes ─▶ take()
//                             ▲          │ no block is left
//                             └──────────┘ (its tokens are kept and computed again)
//
// A step has first a token of every running sequence (and drafted ones, where its own text suggests them),
// then parts of prompts in a fair order between keys, within the model's limits. A sequence is let in when
// there are blocks for all of its tokens; when they run out, the youngest goes back. Places and blocks are
// shared between keys: one that has more than another makes way for it (share.cpp). The oldest always goes
// on, so that every request ends. What a request answers depends on nothing but itself, so that an answer
// which another engine has begun goes on here: its tokens are read again, and then stand behind the prompt.
// Pure, one thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "serve/batch/blocks.hpp"
#include "serve/batch/draft.hpp"
#include "serve/batch/order.hpp"
#include "serve/batch/request.hpp"
#include "serve/batch/text.hpp"
#include "serve/step/step.hpp"

namespace tutti::serve {

struct BatchSettings {
  std::int32_t sequences_max = 256;      // that run at once
  std::size_t requests_max = 10'000;     // that are not finished
  std::int32_t drafts_max = 0;           // tokens that are guessed for a sequence; 0: none
  std::int32_t step_drafts_max = 64;     // for all of them
  std::uint64_t patience_steps = 1'000;  // without anything, then a key goes first
  std::uint64_t passing_steps = 128;     // that others pass one for whom there is no room, then nobody does
  // That guides do for a step before answers are left out of it until the next: some milliseconds. As much
  // once more for answers that are resumed.
  std::uint64_t step_guide_work_max = 250'000;
  // Tokens of answers that are resumed, read in a step: some milliseconds, with as many stop texts as may be.
  std::int64_t step_resumed_max = 16'384;
  bool keeps_prefixes = true;
  std::uint64_t salt = 0;  // of the prefix cache
};

// Half of a step at least is for prompts, so that so many sequences run at most.
constexpr std::int32_t sequences_most(std::int32_t step_tokens_max) {
  return step_tokens_max > 1 ? step_tokens_max / 2 : 1;
}

// What came of an answer in a step.
struct Piece {
  RequestId request;
  std::int32_t answer = 0;
  std::vector<Token> tokens;
  std::vector<Chosen> choices;  // of each token, if logprobs or hidden numbers were asked for
  std::vector<Chosen>
      prompt_choices;  // of each token of the prompt, with the first piece, if they were asked for
  std::string text;    // as far as it is sure
  std::optional<Finish> finish;
  std::string problem;             // if it failed: what the model said, or what its form came to
  std::int64_t cached_tokens = 0;  // of the prompt, when it was first let in
};

struct Plan {
  std::vector<Chunk> chunks;
  std::vector<Choice> choices;
  bool empty() const { return chunks.empty(); }
};

struct BatchCounts {
  std::int64_t running = 0;  // sequences
  std::int64_t waiting = 0;
  std::int64_t requests = 0;
  std::int64_t blocks = 0;
  std::int64_t blocks_used = 0;
  std::int64_t blocks_idle = 0;  // kept for who comes with the same beginning
  // Since the start:
  std::int64_t steps = 0;
  std::int64_t prompt_tokens = 0;  // computed
  std::int64_t cached_tokens = 0;  // found instead
  std::int64_t generated_tokens = 0;
  std::int64_t drafted_tokens = 0;
  std::int64_t accepted_tokens = 0;  // of the drafted ones
  std::int64_t preemptions = 0;
  std::int64_t finished = 0;  // requests
};

class Batch {
 public:
  // The bytes that a token stands for in the text.
  using TokenBytes = std::function<std::string_view(Token)>;

  Batch(const Limits& limits, const BatchSettings& settings, TokenBytes token_bytes);
  ~Batch();
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  // Ids grow: an id that was given is never given again. Too many requests are a failure, a wrong one is
  // invalid. If there is no memory for it and it is not known then, nothing has happened.
  Result<> submit(RequestId id, Request request);
  bool knows(RequestId id) const { return requests_.contains(id); }
  // Its blocks are free at once. Pieces of its answers say so; nothing if there is no such request any more.
  std::vector<Piece> cancel(RequestId id);

  // What the model is to compute now; empty if nothing is to be done. What it points to stays until take() or
  // fail().
  const Plan& plan();
  // Of answers that were over by the tokens they are resumed with, as plan() has found. Of a plan that is not
  // empty take() gives it, too.
  std::vector<Piece> told() { return std::exchange(pieces_, {}); }
  // What the model can compute next while the last plan is computed: one more token of each answer that is
  // not sure to end, behind tokens that nobody knows yet (Chunk::follows). Nothing if what comes next depends
  // on those, as a guess may, or if anybody waits. What comes of answers that have ended meanwhile is
  // dropped.
  const Plan* plan_ahead();
  // What was chosen, one for each choice of the oldest plan that was not taken.
  std::vector<Piece> take(std::span<const Chosen> chosen);
  // The model could not compute the plan: all that ran is finished, failed or lost.
  std::vector<Piece> fail(const std::string& problem, Finish finish = Finish::failed);
  // The model is gone, and with it all that was in its blocks: all requests are finished.
  std::vector<Piece> lose(const std::string& problem) { return begin_anew(problem, true); }
  // Something of this batch has thrown, because there was no memory for it, and is left half done: what ran
  // is lost, what waits goes on, and nothing that is in the blocks is believed. Where there is no memory even
  // for this, it can be asked for again, and so can lose(): nobody is told twice, and nobody is forgotten.
  std::vector<Piece> recover(const std::string& problem) { return begin_anew(problem, false); }
  // Another model is there, of the same vocabulary; perhaps it has another number of blocks.
  void renew(const Limits& limits);

  bool empty() const { return requests_.empty(); }
  BatchCounts counts() const;
  // What must hold between steps, whatever was submitted and cancelled.
  Result<> invariants() const;

 private:
  enum class State {
    held,     // until the first answer's prompt is computed
    resumed,  // until the tokens that it goes on behind are read again
    waiting,
    running,
    finished
  };
  struct Sequence;
  struct Entry;

  // batch.cpp
  std::int64_t blocks_for(std::int64_t positions) const;
  void release_blocks(Sequence& sequence);
  void forget_blocks(Sequence& sequence);
  Piece finish(Sequence& sequence, Finish finish);
  void tell(Sequence& sequence, Piece piece);
  void end_request(RequestId id, Finish reason, const std::string& problem);
  std::vector<Piece> begin_anew(const std::string& problem, bool without_all);
  void drop_if_finished(RequestId id);
  void lay_out(Sequence& sequence);
  void wait_for_turn(Sequence& sequence);
  void let_siblings_wait(Entry& entry);
  // plan.cpp
  void begin_flight();
  void let_guides_forget();
  void plan_decodes();
  void leave_out_guided(std::vector<Sequence*>& ready);
  std::span<const std::uint64_t> allowed(Guide& guide, Guide::State state);
  void plan_prompts();
  void grow(Sequence& sequence);
  void preempt(Sequence& sequence);
  bool has_place() const { return static_cast<std::int64_t>(running_.size()) < settings_.sequences_max; }
  bool may_find(const Sequence& sequence) const;
  void admit(Sequence& sequence);
  void plan_prompt(Sequence& sequence);
  std::span<const Token> draft(Sequence& sequence, std::int32_t decodes_left);
  bool may_be_drafted(Sequence& sequence) const;
  void plan_chunk(Sequence& sequence, std::int64_t tokens, std::span<const Token> drafts, bool reaches_end);
  void plan_follower(Sequence& sequence, std::int32_t choice);
  void plan_choice(Sequence& sequence, std::int32_t row, std::int32_t draft, Guide::State guide_state);
  void plan_given(Sequence& sequence, std::int32_t row, std::int64_t position);
  // share.cpp
  struct Held {  // by a key
    double blocks = 0;
    std::int64_t places = 0;
  };
  using Holdings = std::map<std::string_view, Held>;
  struct Need {  // of blocks, to be let in
    std::int64_t fresh = 0;
    std::int64_t found = 0;
    std::int64_t idle = 0;  // of the found ones
  };
  struct Passing {  // in one step
    std::vector<SequenceId> passed;
    std::optional<Holdings> held;                           // once it was asked for
    double most = std::numeric_limits<double>::infinity();  // that a key has who still may pass
  };
  Sequence& sequence_of(const SequenceId& id) const;
  double weight_of(const Sequence& sequence) const;
  Holdings holdings() const;
  Holdings& holdings(Passing& passing) const;
  Need need_of(const Sequence& sequence) const;
  bool fits(const Need& need, std::span<Sequence* const> leaving = {}) const;
  static std::optional<std::string_view> largest(const Holdings& held, double than);
  Sequence& youngest_of(std::string_view key, std::span<Sequence* const> but = {}) const;
  Sequence& leaves_for(const Sequence& sequence) const;
  void share();
  Sequence* gives_place(const Sequence& sequence) const;
  bool find_leaving(const Sequence& sequence, const Need& need, Holdings held,
                    std::vector<Sequence*>& leaving) const;
  bool may_pass(Sequence& sequence, Passing& passing) const;
  static bool may_enter(const Sequence& sequence, const Need& need, Passing& passing);
  // take.cpp
  struct Planned;
  void take_one(const Planned& planned, std::span<const Chosen> chosen);
  void lose_one(Sequence& sequence);
  bool take_prompt(Sequence& sequence, std::span<const Chosen> given);
  void end_prompt(Sequence& sequence, const Chosen& first, Piece& piece);
  void take_tokens(Sequence& sequence, std::span<const Chosen> chosen, std::span<const Token> drafts,
                   Piece& piece);
  std::optional<Finish> append(Sequence& sequence, const Chosen& chosen, Piece& piece);
  std::optional<Finish> read(Sequence& sequence, Token token);
  struct Reading {  // that is left to a step
    std::int64_t tokens = 0;
    std::uint64_t guide_work = 0;
  };
  void read_resumed();
  bool read_resumed(Sequence& sequence, Reading& left);
  void keep_full_blocks(Sequence& sequence);

  struct Planned {
    Sequence* sequence = nullptr;  // none: it has ended since
    std::int64_t tokens = 0;       // of its own, without drafts
    std::span<const Token> drafts;
    std::size_t first_choice = 0;
    std::size_t choices = 0;
    std::size_t given = 0;  // the first of them, whose tokens are the prompt's
  };
  // A step that is planned or computed.
  struct Flight {
    Plan plan;
    std::vector<Planned> planned;
    std::vector<Token> tokens;  // room for all of them, so that spans stay
    std::deque<std::vector<std::uint64_t>> masks;
  };

  Limits limits_;
  BatchSettings settings_;
  TokenBytes token_bytes_;
  Blocks blocks_;
  Order order_;
  std::map<RequestId, std::unique_ptr<Entry>> requests_;
  std::set<SequenceId> running_;  // oldest first
  std::set<SequenceId> resumed_;  // that are read again
  SequenceId half_read_;          // of them, where the last step had no more time
  std::int64_t unfinished_ = 0;   // answers
  std::vector<Piece> pieces_;     // that nobody was given yet
  BatchCounts counts_;

  std::array<Flight, 2> flights_;
  std::size_t oldest_ = 0;     // of the flights
  std::size_t under_way_ = 0;  // flights that were not taken
  Flight* flight_ = nullptr;   // that is planned now
  std::int64_t tokens_left_ = 0;
  std::int64_t rows_left_ = 0;
  std::int64_t drafts_left_ = 0;
  std::uint64_t guide_work_left_ = 0;
};

}  // namespace tutti::serve
