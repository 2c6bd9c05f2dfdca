#include "serve/batch/batch.hpp"

#include <algorithm>
#include <utility>

#include "base/check.hpp"
#include "base/index.hpp"
#include "serve/batch/sequence.hpp"

namespace tutti::serve {
namespace {

// Sorted by token, each once.
std::vector<Choice::Seen> seen_of(const Request& request) {
  if (!request.sampling.penalizes()) return {};
  std::vector<Token> tokens = request.prompt;
  tokens.insert(tokens.end(), request.resumed.begin(), request.resumed.end());
  std::sort(tokens.begin(), tokens.end());
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
  std::vector<Choice::Seen> seen;
  seen.reserve(tokens.size());
  for (const Token token : tokens) seen.push_back({token, 0});
  return seen;
}

}  // namespace

Batch::Batch(const Limits& limits, const BatchSettings& settings, TokenBytes token_bytes)
    : limits_(limits),
      settings_(settings),
      token_bytes_(std::move(token_bytes)),
      blocks_(limits.blocks, limits.block_tokens, settings.salt),
      order_(settings.patience_steps) {
  TUTTI_CHECK(limits.step_tokens_max > 0 && limits.step_rows_max > 0 && settings.sequences_max > 0);
  // Each that runs has a row.
  settings_.sequences_max =
      std::min({settings.sequences_max, sequences_most(limits.step_tokens_max), limits.step_rows_max});
  for (Flight& flight : flights_) flight.tokens.reserve(at(limits.step_tokens_max));
}

Batch::~Batch() = default;

std::int64_t Batch::blocks_for(std::int64_t positions) const {
  return (positions + limits_.block_tokens - 1) / limits_.block_tokens;
}

Result<> Batch::submit(RequestId id, Request request) {
  TUTTI_CHECK(requests_.empty() || requests_.rbegin()->first < id, "ids grow");
  if (auto checked = check(request, limits_); !checked) return checked;
  if (requests_.size() >= settings_.requests_max) {
    return failed(std::to_string(requests_.size()) + " requests wait already")
        .remedy("ask again in a while, or start another engine");
  }
  auto entry = std::make_unique<Entry>();
  entry->id = id;
  entry->request = std::move(request);
  const auto stops = std::make_shared<const StopTexts>(entry->request.stop_texts);
  for (std::int32_t answer = 0; answer < entry->request.answers; ++answer) {
    auto sequence = std::make_unique<Sequence>(entry->request, stops);
    sequence->id = {id, answer};
    if (entry->request.guide) sequence->guide_state = entry->request.guide->start();
    entry->sequences.push_back(std::move(sequence));
  }
  Sequence& first = *entry->sequences.front();
  lay_out(first);
  const bool is_resumed = !first.request->resumed.empty();
  // Whatever there is no memory for from here on: recover() lets it wait, or be read.
  first.state = is_resumed ? State::resumed : State::waiting;
  unfinished_ += requests_.emplace(id, std::move(entry)).first->second->request.answers;
  order_.enter(first.request->key, at(counts_.steps));
  if (is_resumed) {
    resumed_.insert(first.id);
  } else {
    wait_for_turn(first);
  }
  return {};
}

void Batch::lay_out(Sequence& sequence) {
  if (!sequence.tokens.empty()) return;
  const Request& request = *sequence.request;
  std::vector<Token> tokens = request.prompt;
  tokens.insert(tokens.end(), request.resumed.begin(), request.resumed.end());
  sequence.seen = seen_of(request);
  sequence.tokens = std::move(tokens);
}

void Batch::wait_for_turn(Sequence& sequence) {
  lay_out(sequence);
  order_.add(sequence.request->key, sequence.id, at(counts_.steps));
  sequence.state = State::waiting;  // last: who waits stands in the order
}

// The other answers share the blocks of the prompt, once there are any.
void Batch::let_siblings_wait(Entry& entry) {
  for (const auto& sequence : entry.sequences) {
    if (sequence->state == State::held) wait_for_turn(*sequence);
  }
}

// The last one first, so that the beginning of a text stays in the cache longest.
void Batch::release_blocks(Sequence& sequence) {
  for (auto block = sequence.blocks.rbegin(); block != sequence.blocks.rend(); ++block)
    blocks_.release(*block);
  forget_blocks(sequence);
}

void Batch::forget_blocks(Sequence& sequence) {
  sequence.blocks.clear();
  sequence.kept_blocks = 0;
  sequence.computed = 0;
  sequence.hidden_sum.clear();
  sequence.prompt_choices.clear();
}

Piece Batch::finish(Sequence& sequence, Finish finish) {
  TUTTI_CHECK(sequence.state != State::finished);
  release_blocks(sequence);
  if (order_.waits(sequence.request->key, sequence.id)) order_.remove(sequence.request->key, sequence.id);
  running_.erase(sequence.id);
  resumed_.erase(sequence.id);
  for (Flight& flight : flights_) {
    for (Planned& planned : flight.planned) {
      if (planned.sequence == &sequence) planned.sequence = nullptr;
    }
  }
  sequence.state = State::finished;
  --unfinished_;
  ++requests_.at(sequence.id.request)->finished;
  Piece piece;
  piece.request = sequence.id.request;
  piece.answer = sequence.id.answer;
  piece.text = sequence.text.finish();
  piece.finish = finish;
  piece.cached_tokens = std::max<std::int64_t>(sequence.cached_tokens, 0);
  return piece;
}

void Batch::tell(Sequence& sequence, Piece piece) {
  const bool is_last = piece.finish.has_value();
  pieces_.push_back(std::move(piece));
  sequence.is_told = is_last;
}

void Batch::drop_if_finished(RequestId id) {
  const auto entry = requests_.find(id);
  if (entry == requests_.end() || at(entry->second->finished) < entry->second->sequences.size()) return;
  order_.leave(entry->second->request.key);
  requests_.erase(entry);
  ++counts_.finished;
}

std::vector<Piece> Batch::cancel(RequestId id) {
  TUTTI_CHECK(under_way_ == 0, "a step that is being computed is taken first");
  if (requests_.contains(id)) end_request(id, Finish::cancelled, "");
  return std::exchange(pieces_, {});
}

std::vector<Piece> Batch::fail(const std::string& problem, Finish finish) {
  under_way_ = 0;
  for (Flight& flight : flights_) flight.planned.clear();
  while (!running_.empty()) end_request(running_.begin()->request, finish, problem);
  return std::exchange(pieces_, {});
}

// All that follows from the requests is made anew of them, whatever has become of it.
std::vector<Piece> Batch::begin_anew(const std::string& problem, bool without_all) {
  under_way_ = 0;
  for (Flight& flight : flights_) flight.planned.clear();
  running_.clear();
  resumed_.clear();
  blocks_.clear();
  order_ = Order(settings_.patience_steps);
  unfinished_ = 0;
  for (auto next = requests_.begin(); next != requests_.end();) {
    Entry& entry = *next->second;
    for (const auto& sequence : entry.sequences) {
      const bool is_left_open = sequence->state == State::finished && !sequence->is_told;
      const bool is_half_read = sequence->state == State::resumed && sequence->generated > 0;
      entry.is_lost =
          entry.is_lost || without_all || is_left_open || is_half_read || sequence->state == State::running;
      forget_blocks(*sequence);
    }
    entry.finished = 0;
    for (const auto& sequence : entry.sequences) {
      if (entry.is_lost && !sequence->is_told) {
        Piece piece{.request = sequence->id.request,
                    .answer = sequence->id.answer,
                    .text = sequence->text.finish(),
                    .finish = Finish::lost,
                    .problem = problem,
                    .cached_tokens = std::max<std::int64_t>(sequence->cached_tokens, 0)};
        tell(*sequence, std::move(piece));
      }
      if (sequence->is_told) sequence->state = State::finished;
      if (sequence->state == State::finished) ++entry.finished;
    }
    if (entry.is_lost) {
      next = requests_.erase(next);
      ++counts_.finished;
      continue;
    }
    unfinished_ += entry.request.answers - entry.finished;
    order_.enter(entry.request.key, at(counts_.steps));
    for (const auto& sequence : entry.sequences) {
      if (sequence->state == State::waiting) wait_for_turn(*sequence);
      if (sequence->state == State::resumed) resumed_.insert(sequence->id);
    }
    ++next;
  }
  return std::exchange(pieces_, {});
}

void Batch::renew(const Limits& limits) {
  TUTTI_CHECK(requests_.empty() && limits.vocabulary == limits_.vocabulary &&
              limits.step_tokens_max == limits_.step_tokens_max &&
              limits.step_rows_max == limits_.step_rows_max);
  blocks_ = Blocks(limits.blocks, limits.block_tokens, settings_.salt);
  limits_ = limits;
}

void Batch::end_request(RequestId id, Finish reason, const std::string& problem) {
  for (const auto& sequence : requests_.at(id)->sequences) {
    if (sequence->state == State::finished) continue;
    std::string why = problem;
    Piece piece = finish(*sequence, reason);
    piece.problem = std::move(why);
    tell(*sequence, std::move(piece));
  }
  drop_if_finished(id);
}

BatchCounts Batch::counts() const {
  BatchCounts counts = counts_;
  counts.requests = static_cast<std::int64_t>(requests_.size());
  counts.running = static_cast<std::int64_t>(running_.size());
  counts.waiting = unfinished_ - counts.running;
  counts.blocks = blocks_.count();
  counts.blocks_used = blocks_.used();
  counts.blocks_idle = blocks_.idle();
  return counts;
}

Result<> Batch::invariants() const {
  const auto broken = [](const SequenceId& id, const std::string& what) {
    return failed("answer " + std::to_string(id.answer) + " of request " + id.request.text() + ": " + what);
  };
  std::vector<std::int32_t> users(at(blocks_.count()));
  std::size_t running = 0;
  std::int64_t unfinished = 0;
  for (const auto& [id, entry] : requests_) {
    std::int32_t finished = 0;
    unfinished += entry->request.answers - entry->finished;
    for (const auto& sequence : entry->sequences) {
      const bool runs = sequence->state == State::running;
      const bool in_order = order_.waits(entry->request.key, sequence->id);
      for (const BlockId block : sequence->blocks) ++users[at(block)];
      if (runs) ++running;
      if (sequence->state == State::finished) ++finished;
      if (runs != running_.contains(sequence->id)) return broken(sequence->id, "it runs in one place alone");
      if (!runs && !sequence->blocks.empty()) return broken(sequence->id, "it holds blocks and does not run");
      if ((sequence->state == State::resumed) != resumed_.contains(sequence->id))
        return broken(sequence->id, "it is read again in one place alone");
      if (in_order != (sequence->state == State::waiting || (runs && sequence->in_prompt)))
        return broken(sequence->id, "it waits in one place alone");
      if (static_cast<std::int64_t>(sequence->blocks.size()) < blocks_for(sequence->computed))
        return broken(sequence->id, "it has computed more than its blocks hold");
      if (runs && sequence->computed >= sequence->size())
        return broken(sequence->id, "nothing of it is left to compute");
      if (sequence->kept_blocks > sequence->blocks.size())
        return broken(sequence->id, "it shares more blocks than it has");
    }
    if (finished != entry->finished || at(finished) == entry->sequences.size())
      return failed("request " + id.text() + ": its finished answers are counted wrong");
  }
  if (unfinished != unfinished_) return failed("the answers that are not finished are counted wrong");
  if (running != running_.size()) return failed("somebody runs who is not there");
  if (auto checked = order_.invariants(); !checked) return checked;
  return blocks_.invariants(users);
}

}  // namespace tutti::serve
