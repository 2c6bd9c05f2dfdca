#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <new>
#include <utility>

#include "base/check.hpp"
#include "base/index.hpp"
#include "serve/batch/choose.hpp"
#include "serve/batch/sequence.hpp"

namespace tutti::serve {
namespace {

constexpr std::string_view guide_is_beyond =
    "to know what the form of the answer allows here takes too much work; ask for a form with fewer "
    "alternatives that begin alike, or with less that is counted";
constexpr std::string_view guide_has_nothing =
    "no token of the model goes on as the form of the answer wants it: it is nested too deep, or has letters "
    "that the model cannot write";

constexpr std::string_view has_no_numbers =
    "what the model computed here is no number, or infinite: its weights or those of its adapter are "
    "damaged, "
    "or their products too large";

constexpr std::string_view resumes_what_is_none =
    "the tokens that the answer is resumed with are not of the form that is asked for";

constexpr std::string_view has_no_memory = "this machine has no memory for what came of it just now";

bool are_numbers(std::span<const float> numbers) {
  return std::ranges::all_of(numbers, [](float number) { return std::isfinite(number); });
}

// Why an answer cannot go on, of which nothing more can come.
std::string_view problem_of(const Request& request, Guide::State state, bool has_numbers) {
  if (!has_numbers || !request.guide) return has_no_numbers;
  return request.guide->is_beyond(state) ? guide_is_beyond : guide_has_nothing;
}

void add_to(std::vector<double>& sum, std::span<const double> numbers) {
  if (sum.size() < numbers.size()) sum.resize(numbers.size());
  for (std::size_t nth = 0; nth < numbers.size(); ++nth) sum[nth] += numbers[nth];
}

}  // namespace

std::vector<Piece> Batch::take(std::span<const Chosen> chosen) {
  Flight& flight = flights_[oldest_];
  TUTTI_CHECK(under_way_ > 0 && chosen.size() == flight.plan.choices.size(),
              "one token for each choice of the step");
  --under_way_;
  oldest_ = (oldest_ + 1) % flights_.size();
  const std::vector<Planned> all = std::exchange(flight.planned, {});
  for (const Planned& planned : all) {
    if (planned.sequence == nullptr) continue;
    const RequestId id = planned.sequence->id.request;
    try {
      take_one(planned, chosen.subspan(planned.first_choice, planned.choices));
    } catch (const std::bad_alloc&) {
      lose_one(*planned.sequence);
    }
    drop_if_finished(id);
  }
  return std::exchange(pieces_, {});
}

void Batch::take_one(const Planned& planned, std::span<const Chosen> chosen) {
  Sequence& sequence = *planned.sequence;
  sequence.computed += planned.tokens;
  Piece piece;
  piece.request = sequence.id.request;
  piece.answer = sequence.id.answer;
  if (!take_prompt(sequence, chosen.first(planned.given))) {
    piece = finish(sequence, Finish::failed);
    piece.problem = has_no_numbers;
  } else if (planned.choices == planned.given) {
    return keep_full_blocks(sequence);
  } else {
    take_tokens(sequence, chosen.subspan(planned.given), planned.drafts, piece);
  }
  if (!piece.tokens.empty() || !piece.text.empty() || piece.finish) tell(sequence, std::move(piece));
  let_siblings_wait(*requests_.at(sequence.id.request));
}

// There is no memory for what came of it. Those that wait for its prompt would wait for ever.
void Batch::lose_one(Sequence& sequence) {
  for (const auto& other : requests_.at(sequence.id.request)->sequences) {
    if (other->is_told || (other.get() != &sequence && other->state != State::held)) continue;
    Piece piece;
    if (other->state != State::finished) piece = finish(*other, Finish::lost);
    piece.request = other->id.request;
    piece.answer = other->id.answer;
    piece.finish = Finish::lost;
    piece.problem = has_no_memory;
    tell(*other, std::move(piece));
  }
}

// What has come of a part of the prompt; false if it is no numbers.
bool Batch::take_prompt(Sequence& sequence, std::span<const Chosen> given) {
  for (const Chosen& each : given) {
    if (each.token == no_number) return false;
    add_to(sequence.hidden_sum, each.hidden_sum);
    if (sequence.request->prompt_logprobs) sequence.prompt_choices.push_back(each);
  }
  return true;
}

// All of the prompt is computed, and this is the first token behind it.
void Batch::end_prompt(Sequence& sequence, const Chosen& first, Piece& piece) {
  if (sequence.request->prompt_logprobs) {
    // Nothing stands before the first token that it could be likely after.
    Chosen begin;
    begin.token = sequence.tokens.front();
    begin.logprob = std::numeric_limits<float>::quiet_NaN();
    piece.prompt_choices.push_back(std::move(begin));
    std::ranges::move(sequence.prompt_choices, std::back_inserter(piece.prompt_choices));
    sequence.prompt_choices.clear();
  }
  if (sequence.request->pooling != Pooling::mean) return;
  add_to(sequence.hidden_sum, first.hidden_sum);
  std::vector<float>& mean = piece.choices.back().hidden;
  const auto count = static_cast<double>(sequence.request->prompt.size());
  for (const double sum : sequence.hidden_sum) mean.push_back(static_cast<float>(sum / count));
  piece.choices.back().hidden_sum.clear();
}

// A guess is right if it is what is chosen anyway: then its keys and values are those of the answer, and the
// row behind it holds for the token after it. One behind which nothing was chosen, because its guide would
// have had too much to do, is computed again.
void Batch::take_tokens(Sequence& sequence, std::span<const Chosen> chosen, std::span<const Token> drafts,
                        Piece& piece) {
  std::size_t right = 0;
  bool has_numbers = true;
  std::optional<Finish> finished;
  for (std::size_t row = 0; row < chosen.size(); ++row) {
    finished = append(sequence, chosen[row], piece);
    has_numbers = chosen[row].token != no_number;
    if (finished || row + 1 == chosen.size() || chosen[row].token != drafts[row]) break;
    ++right;
  }
  sequence.computed += static_cast<std::int64_t>(right);
  counts_.accepted_tokens += static_cast<std::int64_t>(right);
  sequence.drafter.learn(drafts.size(), right);
  keep_full_blocks(sequence);
  piece.text = sequence.text.take();
  if (!finished) return;
  Piece last = finish(sequence, *finished);
  piece.text += last.text;
  piece.finish = last.finish;
  if (*finished == Finish::failed)
    piece.problem = problem_of(*sequence.request, sequence.guide_state, has_numbers);
  piece.cached_tokens = last.cached_tokens;
}

// One more token of an answer, and whether it was the last.
std::optional<Finish> Batch::append(Sequence& sequence, const Chosen& chosen, Piece& piece) {
  const Request& request = *sequence.request;
  if (chosen.token == no_number) return Finish::failed;
  // Nothing may come. What a guide has not called whole is not: nobody may take it for an answer.
  if (chosen.token == no_token) return request.guide ? Finish::failed : Finish::stop;
  TUTTI_CHECK(chosen.token >= 0 && chosen.token < limits_.vocabulary);
  sequence.tokens.push_back(chosen.token);
  ++counts_.generated_tokens;
  piece.tokens.push_back(chosen.token);
  if (request.sampling.logprobs >= 0 || request.pooling != Pooling::none) piece.choices.push_back(chosen);
  if (sequence.reads_prompt()) end_prompt(sequence, chosen, piece);
  if (request.pooling != Pooling::none && !are_numbers(piece.choices.back().hidden)) return Finish::failed;
  return read(sequence, chosen.token);
}

// What the next token of an answer comes to, whoever has chosen it, and whether it was the last.
std::optional<Finish> Batch::read(Sequence& sequence, Token token) {
  const Request& request = *sequence.request;
  ++sequence.generated;
  if (std::ranges::find(request.stop_ids, token) != request.stop_ids.end()) return Finish::stop;
  if (sequence.text.add(token_bytes_(token))) return Finish::stop;
  if (request.sampling.penalizes()) {
    auto place = std::ranges::lower_bound(sequence.seen, token, {}, &Choice::Seen::token);
    if (place == sequence.seen.end() || place->token != token)
      place = sequence.seen.insert(place, {token, 0});
    ++place->generated;
  }
  if (request.guide) {
    sequence.guide_state = request.guide->next(sequence.guide_state, token);
    if (sequence.guide_state == Guide::dead || sequence.guide_state == Guide::beyond) return Finish::failed;
    if (request.guide->ended(sequence.guide_state)) return Finish::stop;
  }
  if (sequence.generated >= request.tokens_max) return Finish::length;
  return std::nullopt;
}

// Answers that another engine has begun, in turns. A step has time for so many tokens of theirs, and for so
// much that their guides have to do, so that nobody waits for long.
void Batch::read_resumed() {
  Reading left{settings_.step_resumed_max, settings_.step_guide_work_max};
  const auto next = resumed_.upper_bound(half_read_);
  std::vector<SequenceId> turns(next, resumed_.end());
  turns.insert(turns.end(), resumed_.begin(), next);
  std::optional<SequenceId> half_read;
  for (const SequenceId& id : turns) {
    if (!read_resumed(sequence_of(id), left) && !half_read) half_read = id;
    drop_if_finished(id.request);
  }
  if (half_read) half_read_ = *half_read;
}

// False if there is more to read. What is sure of its text was said where it began, and all of it if it has
// ended there.
bool Batch::read_resumed(Sequence& sequence, Reading& left) {
  const Request& request = *sequence.request;
  while (at(sequence.generated) < request.resumed.size()) {
    if (left.tokens == 0 || (request.guide && left.guide_work == 0)) return false;
    --left.tokens;
    const std::uint64_t before = request.guide ? request.guide->work() : 0;
    const auto finished = read(sequence, request.resumed[at(sequence.generated)]);
    if (request.guide) left.guide_work -= std::min(left.guide_work, request.guide->work() - before);
    static_cast<void>(sequence.text.take());
    if (!finished) continue;
    Piece last = finish(sequence, *finished);
    last.text.clear();
    if (*finished == Finish::failed)
      last.problem = sequence.guide_state == Guide::beyond ? guide_is_beyond : resumes_what_is_none;
    tell(sequence, std::move(last));
    return true;
  }
  wait_for_turn(sequence);
  resumed_.erase(sequence.id);
  return true;
}

void Batch::keep_full_blocks(Sequence& sequence) {
  if (!settings_.keeps_prefixes) return;
  const auto size = at(limits_.block_tokens);
  while ((sequence.kept_blocks + 1) * size <= at(sequence.computed)) {
    BlockId& block = sequence.blocks[sequence.kept_blocks];
    const BlockId before = sequence.kept_blocks == 0 ? no_block : sequence.blocks[sequence.kept_blocks - 1];
    block = blocks_.keep(block, before, sequence.request->adapter,
                         std::span(sequence.tokens).subspan(sequence.kept_blocks * size, size));
    ++sequence.kept_blocks;
  }
}

}  // namespace tutti::serve
