#include <algorithm>
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

}  // namespace

std::vector<Piece> Batch::take(std::span<const Chosen> chosen) {
  Flight& flight = flights_[oldest_];
  TUTTI_CHECK(under_way_ > 0 && chosen.size() == flight.plan.choices.size(),
              "one token for each choice of the step");
  --under_way_;
  oldest_ = (oldest_ + 1) % flights_.size();
  const std::vector<Planned> all = std::exchange(flight.planned, {});
  std::vector<Piece> pieces;
  for (const Planned& planned : all) {
    if (planned.sequence == nullptr) continue;
    Sequence& sequence = *planned.sequence;
    sequence.computed += planned.tokens;
    if (planned.choices == 0) {
      keep_full_blocks(sequence);
      continue;
    }
    const SequenceId id = sequence.id;
    Entry& entry = *requests_.at(id.request);
    Piece piece;
    piece.request = id.request;
    piece.answer = id.answer;
    take_tokens(sequence, chosen.subspan(planned.first_choice, planned.choices), planned.drafts, piece);
    if (!piece.tokens.empty() || !piece.text.empty() || piece.finish) pieces.push_back(std::move(piece));
    let_siblings_wait(entry);
    drop_if_finished(id.request);
  }
  return pieces;
}

// A guess is right if it is what is chosen anyway: then its keys and values are those of the answer, and the
// row behind it holds for the token after it.
void Batch::take_tokens(Sequence& sequence, std::span<const Chosen> chosen, std::span<const Token> drafts,
                        Piece& piece) {
  std::size_t right = 0;
  std::optional<Finish> finished;
  for (std::size_t row = 0; row < chosen.size(); ++row) {
    finished = append(sequence, chosen[row], piece);
    if (finished || row >= drafts.size() || chosen[row].token != drafts[row]) break;
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
    piece.problem = std::string(sequence.request->guide->is_beyond(sequence.guide_state) ? guide_is_beyond
                                                                                         : guide_has_nothing);
  piece.cached_tokens = last.cached_tokens;
}

// One more token of an answer, and whether it was the last.
std::optional<Finish> Batch::append(Sequence& sequence, const Chosen& chosen, Piece& piece) {
  const Request& request = *sequence.request;
  // Nothing may come. What a guide has not called whole is not: nobody may take it for an answer.
  if (chosen.token == no_token) return request.guide ? Finish::failed : Finish::stop;
  TUTTI_CHECK(chosen.token >= 0 && chosen.token < limits_.vocabulary);
  sequence.tokens.push_back(chosen.token);
  ++sequence.generated;
  ++counts_.generated_tokens;
  piece.tokens.push_back(chosen.token);
  if (request.sampling.logprobs >= 0 || request.wants_hidden) piece.choices.push_back(chosen);
  if (std::ranges::find(request.stop_ids, chosen.token) != request.stop_ids.end()) return Finish::stop;
  if (sequence.text.add(token_bytes_(chosen.token))) return Finish::stop;
  if (request.sampling.penalizes()) {
    auto place = std::ranges::lower_bound(sequence.seen, chosen.token, {}, &Choice::Seen::token);
    if (place == sequence.seen.end() || place->token != chosen.token)
      place = sequence.seen.insert(place, {chosen.token, 0});
    ++place->generated;
  }
  if (request.guide) {
    sequence.guide_state = request.guide->next(sequence.guide_state, chosen.token);
    if (sequence.guide_state == Guide::dead || sequence.guide_state == Guide::beyond) return Finish::failed;
    if (request.guide->ended(sequence.guide_state)) return Finish::stop;
  }
  if (sequence.generated >= request.tokens_max) return Finish::length;
  return std::nullopt;
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
