#include <algorithm>
#include <utility>

#include "base/check.hpp"
#include "base/index.hpp"
#include "serve/batch/sequence.hpp"

namespace tutti::serve {

void Batch::begin_flight() {
  flight_ = &flights_[(oldest_ + under_way_) % flights_.size()];
  flight_->plan.chunks.clear();
  flight_->plan.choices.clear();
  flight_->planned.clear();
  flight_->tokens.clear();
  flight_->masks.clear();
  tokens_left_ = limits_.step_tokens_max;
  rows_left_ = limits_.step_rows_max;
  drafts_left_ = settings_.step_drafts_max;
  guide_work_left_ = settings_.step_guide_work_max;
}

const Plan& Batch::plan() {
  TUTTI_CHECK(under_way_ == 0, "the last step was not taken");
  begin_flight();
  let_guides_forget();
  read_resumed();
  share();
  plan_decodes();
  plan_prompts();
  if (!flight_->plan.empty()) {
    ++under_way_;
    ++counts_.steps;
  }
  return flight_->plan;
}

// A block that an ended answer gives back may still be written to by a step that was planned ahead, behind
// all that was kept of it; whoever gets it next writes it in a later step, before he reads it.
const Plan* Batch::plan_ahead() {
  TUTTI_CHECK(under_way_ == 1, "one step is ahead of one other");
  const Flight& before = flights_[oldest_];
  if (unfinished_ != static_cast<std::int64_t>(running_.size()) || before.planned.size() != running_.size())
    return nullptr;
  std::int64_t fresh = 0;
  for (const Planned& planned : before.planned) {
    if (planned.choices != 1 || !is_plain(before.plan.choices[planned.first_choice])) return nullptr;
    Sequence& sequence = *planned.sequence;
    if (may_be_drafted(sequence)) return nullptr;
    // It may have more than it needs, from guesses that were wrong.
    fresh += std::max<std::int64_t>(
        blocks_for(sequence.size() + 1) - static_cast<std::int64_t>(sequence.blocks.size()), 0);
  }
  if (fresh > blocks_.available()) return nullptr;
  begin_flight();
  for (const Planned& planned : before.planned) {
    Sequence& sequence = *planned.sequence;
    if (sequence.generated + 1 >= sequence.request->tokens_max) continue;
    while (static_cast<std::int64_t>(sequence.blocks.size()) < blocks_for(sequence.size() + 1))
      sequence.blocks.push_back(*blocks_.take());
    plan_follower(sequence, static_cast<std::int32_t>(planned.first_choice));
  }
  if (flight_->plan.empty()) return nullptr;
  ++under_way_;
  ++counts_.steps;
  return &flight_->plan;
}

// In the step after the one under way: what it would be guessed from is known but for one token.
bool Batch::may_be_drafted(Sequence& sequence) const {
  const bool has_room = sequence.request->tokens_max - sequence.generated > 2;
  return settings_.drafts_max > 0 && has_room && sequence.drafter.may_guess_next(sequence.tokens);
}

// One token behind the one that this choice of the step before comes to.
void Batch::plan_follower(Sequence& sequence, std::int32_t choice) {
  sequence.planned_step = counts_.steps;
  sequence.drafter.skip();
  const auto row = static_cast<std::int32_t>(limits_.step_rows_max - rows_left_);
  flight_->tokens.push_back(0);
  flight_->plan.chunks.push_back({.tokens = std::span<const Token>(flight_->tokens).last(1),
                                  .first = sequence.size(),
                                  .blocks = sequence.blocks,
                                  .rows = 1,
                                  .adapter = sequence.request->adapter,
                                  .follows = choice});
  flight_->planned.push_back({&sequence, 1, {}, flight_->plan.choices.size(), 1});
  plan_choice(sequence, row, 1, sequence.guide_state);
  --tokens_left_;
  --rows_left_;
  order_.charge(sequence.request->key, 1, at(counts_.steps));
}

// Between steps, when all states that anybody is in are those of sequences.
void Batch::let_guides_forget() {
  std::vector<Guide*> crowded;
  const auto look = [&](const SequenceId& id) {
    Guide* const guide = requests_.at(id.request)->request.guide.get();
    if (guide != nullptr && std::ranges::find(crowded, guide) == crowded.end() && guide->is_crowded())
      crowded.push_back(guide);
  };
  std::ranges::for_each(running_, look);
  std::ranges::for_each(resumed_, look);
  for (Guide* const guide : crowded) {
    std::vector<Guide::State*> held;
    for (const auto& [id, entry] : requests_) {
      if (entry->request.guide.get() != guide) continue;
      for (const auto& sequence : entry->sequences) {
        if (sequence->state != State::finished) held.push_back(&sequence->guide_state);
      }
    }
    guide->forget_others(held);
  }
}

std::span<const std::uint64_t> Batch::allowed(Guide& guide, Guide::State state) {
  const std::uint64_t before = guide.work();
  const auto mask = guide.allowed(state);
  guide_work_left_ -= std::min(guide_work_left_, guide.work() - before);
  return mask;
}

// What may come in a state that is new takes a guide a while, and the tokens of all others with it: when the
// work of a step is done the rest waits for the next one, and who has waited longest is first in it.
void Batch::leave_out_guided(std::vector<Sequence*>& ready) {
  std::vector<Sequence*> fresh;
  for (Sequence* const sequence : ready) {
    Guide* const guide = sequence->request->guide.get();
    if (guide != nullptr && !guide->knows(sequence->guide_state)) fresh.push_back(sequence);
  }
  std::ranges::stable_sort(fresh, {}, &Sequence::planned_step);
  for (Sequence* const sequence : fresh) {
    Guide& guide = *sequence->request->guide;
    if (guide_work_left_ > 0) {
      static_cast<void>(allowed(guide, sequence->guide_state));
    } else if (!guide.knows(sequence->guide_state)) {
      std::erase(ready, sequence);
    }
  }
}

void Batch::plan_decodes() {
  std::vector<Sequence*> ready;  // oldest first
  for (const SequenceId& id : running_) {
    Sequence& sequence = sequence_of(id);
    if (!sequence.in_prompt) ready.push_back(&sequence);
  }
  leave_out_guided(ready);
  // Before anything is planned: who has to make room is not in the step.
  for (Sequence* const sequence : ready) {
    if (sequence->state == State::running) grow(*sequence);
  }
  std::erase_if(ready, [](const Sequence* sequence) { return sequence->state != State::running; });
  auto left = static_cast<std::int32_t>(ready.size());
  for (Sequence* const sequence : ready) {
    --left;
    plan_chunk(*sequence, 1, draft(*sequence, left), true);
  }
}

// Blocks for all tokens of a running sequence, which may have to go itself.
void Batch::grow(Sequence& sequence) {
  while (static_cast<std::int64_t>(sequence.blocks.size()) < blocks_for(sequence.size())) {
    if (const auto block = blocks_.take()) {
      sequence.blocks.push_back(*block);
      continue;
    }
    Sequence& leaving = leaves_for(sequence);
    preempt(leaving);
    if (&leaving == &sequence) return;
  }
}

void Batch::preempt(Sequence& sequence) {
  release_blocks(sequence);
  running_.erase(sequence.id);
  ++counts_.preemptions;
  if (std::exchange(sequence.in_prompt, false)) {
    sequence.state = State::waiting;  // it stands in the order still
  } else {
    wait_for_turn(sequence);
  }
}

// Only as far as there is room that nobody else of this step needs; no block is taken from others for a
// guess. The penalties of a token depend on those before it, guesses among them: such answers are not
// guessed.
std::span<const Token> Batch::draft(Sequence& sequence, std::int32_t decodes_left) {
  const Request& request = *sequence.request;
  if (settings_.drafts_max == 0 || request.sampling.penalizes()) return {};
  const std::int64_t room =
      std::min({std::int64_t{settings_.drafts_max}, drafts_left_, tokens_left_ - 1 - decodes_left,
                rows_left_ - 1 - decodes_left, request.tokens_max - sequence.generated - 1});
  if (room <= 0) return {};
  auto guessed = sequence.drafter.guess(sequence.tokens, at(room));
  if (guessed.empty()) return {};
  const auto needed = [&] { return blocks_for(sequence.size() + static_cast<std::int64_t>(guessed.size())); };
  while (static_cast<std::int64_t>(sequence.blocks.size()) < needed()) {
    if (blocks_.available() > decodes_left) {
      sequence.blocks.push_back(*blocks_.take());
    } else {
      guessed = guessed.first(guessed.size() - 1);
    }
  }
  drafts_left_ -= static_cast<std::int64_t>(guessed.size());
  return guessed;
}

void Batch::plan_prompts() {
  Passing passing;
  while (tokens_left_ > 0 && rows_left_ > 0) {
    const auto turn = order_.next(at(counts_.steps), passing.passed);
    if (!turn) break;
    Sequence& sequence = sequence_of(*turn);
    if (sequence.state == State::waiting) {
      if (!has_place()) break;
      const Need need = need_of(sequence);
      if (!fits(need) || !may_enter(sequence, need, passing)) {
        if (may_pass(sequence, passing)) continue;
        break;
      }
      admit(sequence);
    }
    plan_prompt(sequence);
    if (sequence.in_prompt) break;  // what this step has room for
  }
  // Those that are in already go on.
  for (const SequenceId& id : running_) {
    Sequence& sequence = sequence_of(id);
    if (!sequence.in_prompt || sequence.planned_step == counts_.steps) continue;
    if (tokens_left_ == 0 || rows_left_ == 0) return;
    plan_prompt(sequence);
  }
}

bool Batch::may_find(const Sequence& sequence) const {
  return settings_.keeps_prefixes && !sequence.reads_prompt();
}

// One that fits: takes blocks for all of its tokens, those that are in the cache first.
void Batch::admit(Sequence& sequence) {
  if (may_find(sequence)) sequence.blocks = blocks_.find(sequence.request->adapter, sequence.before_last());
  const std::int64_t fresh = blocks_for(sequence.size()) - static_cast<std::int64_t>(sequence.blocks.size());
  sequence.kept_blocks = sequence.blocks.size();
  sequence.computed = static_cast<std::int64_t>(sequence.blocks.size()) * limits_.block_tokens;
  for (std::int64_t taken = 0; taken < fresh; ++taken) sequence.blocks.push_back(*blocks_.take());
  if (sequence.cached_tokens < 0) {
    // What was found of an answer that is resumed is no part of its prompt.
    const auto prompt = static_cast<std::int64_t>(sequence.request->prompt.size());
    sequence.cached_tokens = std::min(sequence.computed, prompt);
  }
  counts_.cached_tokens += sequence.computed;
  sequence.state = State::running;
  sequence.in_prompt = true;
  sequence.refused_step = -1;
  running_.insert(sequence.id);
}

// As much of its tokens as the step has room for. Where each of them needs a row, half of the rows are left
// to others.
void Batch::plan_prompt(Sequence& sequence) {
  const std::int64_t left = sequence.size() - sequence.computed;
  std::int64_t tokens = std::min(left, tokens_left_);
  if (sequence.reads_prompt() && sequence.request->prompt_logprobs)
    tokens = std::min({tokens, rows_left_, std::max<std::int64_t>(limits_.step_rows_max / 2, 1)});
  counts_.prompt_tokens += tokens;
  plan_chunk(sequence, tokens, {}, tokens == left);
  if (tokens < left) return;
  sequence.in_prompt = false;
  order_.remove(sequence.request->key, sequence.id);
}

void Batch::plan_chunk(Sequence& sequence, std::int64_t tokens, std::span<const Token> drafts,
                       bool reaches_end) {
  sequence.planned_step = counts_.steps;
  const std::size_t first = flight_->tokens.size();
  const auto own = std::span(sequence.tokens).subspan(at(sequence.computed), at(tokens));
  flight_->tokens.insert(flight_->tokens.end(), own.begin(), own.end());
  flight_->tokens.insert(flight_->tokens.end(), drafts.begin(), drafts.end());
  // A sum needs one row of its chunk to be asked for with, logprobs one of each token.
  std::int64_t given = 0;
  if (sequence.reads_prompt())
    given = sequence.request->prompt_logprobs ? tokens - (reaches_end ? 1 : 0) : reaches_end ? 0 : 1;
  const std::int32_t rows =
      static_cast<std::int32_t>(given) + (reaches_end ? static_cast<std::int32_t>(drafts.size()) + 1 : 0);
  const auto first_row = static_cast<std::int32_t>(limits_.step_rows_max - rows_left_);
  const auto all = std::span<const Token>(flight_->tokens).subspan(first);
  flight_->plan.chunks.push_back({.tokens = all,
                                  .first = sequence.computed,
                                  .blocks = sequence.blocks,
                                  .rows = rows,
                                  .adapter = sequence.request->adapter});
  Planned planned{&sequence, tokens,   all.subspan(at(tokens)), flight_->plan.choices.size(),
                  at(rows),  at(given)};
  const std::int64_t end = sequence.computed + tokens - (reaches_end ? 1 : 0);
  for (std::int32_t row = 0; row < given; ++row) plan_given(sequence, first_row + row, end - given + row);
  Guide::State state = sequence.guide_state;
  for (std::int32_t draft = 0; draft < rows - given; ++draft) {
    if (draft > 0 && sequence.request->guide)
      state = sequence.request->guide->next(state, planned.drafts[at(draft) - 1]);
    const bool takes_long = draft > 0 && sequence.request->guide && guide_work_left_ == 0 &&
                            !sequence.request->guide->knows(state);
    // This guess cannot come, or is not worth the wait, and so none behind it.
    if (state == Guide::dead || state == Guide::beyond || takes_long) {
      planned.choices = at(given) + at(draft);
      break;
    }
    plan_choice(sequence, first_row + static_cast<std::int32_t>(given) + draft, draft, state);
  }
  flight_->planned.push_back(planned);
  tokens_left_ -= static_cast<std::int64_t>(all.size());
  rows_left_ -= rows;
  counts_.drafted_tokens += static_cast<std::int64_t>(drafts.size());
  order_.charge(sequence.request->key, tokens, at(counts_.steps));
}

void Batch::plan_choice(Sequence& sequence, std::int32_t row, std::int32_t draft, Guide::State guide_state) {
  const Sampling& sampling = sequence.request->sampling;
  Choice choice;
  choice.row = row;
  choice.temperature = sampling.temperature;
  choice.top_k = sampling.top_k;
  choice.top_p = sampling.top_p;
  choice.min_p = sampling.min_p;
  choice.uniform = uniform_of(sampling.seed, sequence.id.answer, sequence.generated + draft);
  choice.biases = sampling.biases;
  choice.repetition_penalty = sampling.repetition_penalty;
  choice.presence_penalty = sampling.presence_penalty;
  choice.frequency_penalty = sampling.frequency_penalty;
  choice.seen = sequence.seen;
  choice.logprobs = sampling.logprobs;
  if (sequence.generated + draft == 0) choice.pooling = sequence.request->pooling;
  if (sequence.request->guide) {
    const auto mask = allowed(*sequence.request->guide, guide_state);
    choice.allowed = flight_->masks.emplace_back(mask.begin(), mask.end());
  }
  flight_->plan.choices.push_back(choice);
}

// What is wanted of a token of the prompt; the token behind it is known.
void Batch::plan_given(Sequence& sequence, std::int32_t row, std::int64_t position) {
  Choice choice;
  choice.row = row;
  choice.given = sequence.tokens[at(position) + 1];
  choice.pooling = sequence.request->pooling == Pooling::mean ? Pooling::mean : Pooling::none;
  if (sequence.request->prompt_logprobs) choice.logprobs = sequence.request->sampling.logprobs;
  flight_->plan.choices.push_back(choice);
}

}  // namespace tutti::serve
