#include "serve/constrain/constrain.hpp"

#include <algorithm>
#include <atomic>
#include <map>
#include <optional>
#include <set>

#include "base/check.hpp"
#include "base/index.hpp"
#include "base/prng.hpp"
#include "serve/constrain/machine.hpp"
#include "serve/constrain/pattern.hpp"
#include "serve/constrain/schema.hpp"

namespace tutti::serve {
namespace {

// Bytes of tokens that are read along known edges in the time in which one edge is looked at.
constexpr std::uint64_t bytes_an_edge = 4;

// Forms that come with requests keep accounts of their work; what is of tutti's own making need not.
enum class Account { kept, none };

class GrammarGuide final : public Guide {
 public:
  GrammarGuide(std::shared_ptr<const TokenTable> tokens, std::shared_ptr<const Grammar> grammar, NodeId start,
               Account account)
      : tokens_(std::move(tokens)),
        grammar_bytes_(grammar->bytes()),
        account_(account),
        machine_(std::move(grammar), start) {
    note_bytes();
  }

  // Whether there is such an answer, and whether it can be followed for some tokens of any answer.
  Result<> check(const Effort& effort) {
    if (machine_.start() == Machine::dead) return invalid("no answer can have this form");
    work_allowed_ = effort.left();
    Prng random(1);
    State state = start();
    for (int read = 0; read < guide_ahead_tokens && !ended(state); ++read) {
      if (!effort.goes_on()) return effort.refusal();
      const auto token = any_of(allowed(state), random);
      if (!token) break;
      state = next(state, *token);
    }
    if (is_beyond(state)) return effort.refusal();
    if (is_crowded()) forget_others({});
    work_allowed_ = machine_.work() + guide_first_work_max;
    return {};
  }

  State start() override { return outer(machine_.start()); }

  State next(State state, Token token) override {
    if (state <= over) return state == beyond ? beyond : dead;
    work_allowed_ += guide_token_work_max;
    Machine::State inner = state - 1;
    if (tokens_->is_end(token)) return machine_.accepts(inner) ? over : dead;
    const std::string_view bytes = tokens_->bytes(token);
    if (bytes.empty()) return dead;
    for (const char byte : bytes) {
      inner = machine_.next(inner, static_cast<std::uint8_t>(byte));
      if (inner < 0) break;
    }
    note_bytes();
    return outer(inner);
  }

  bool ended(State state) override { return state <= over || !machine_.goes_on(state - 1); }

  std::span<const std::uint64_t> allowed(State state) override {
    const auto known = masks_.find(state);
    if (known != masks_.end()) return known->second;
    if (masks_.size() >= guide_masks_max) masks_.clear();
    // Remembered when it is whole: there may be no memory to find all of it.
    std::vector<std::uint64_t> mask(at(tokens_->vocabulary() + 63) / 64);
    if (state <= over || fill(mask, state - 1)) {
      const auto made = masks_.emplace(state, std::move(mask)).first;
      note_bytes();
      return made->second;
    }
    // Not remembered: others may find more of the way paved.
    beyond_states_.insert(state);
    note_bytes();
    nothing_.assign(at(tokens_->vocabulary() + 63) / 64, 0);
    return nothing_;
  }

  bool knows(State state) override { return state <= over || masks_.contains(state); }
  std::uint64_t work() const override { return machine_.work() + bytes_read_ / bytes_an_edge; }

  bool is_beyond(State state) override { return state == beyond || beyond_states_.contains(state); }

  // What the held states alone need is not thrown away and made again in every step.
  bool is_crowded() override {
    return remembered_bytes() > std::max(guide_bytes_max, 2 * bytes_after_forgetting_);
  }

  void forget_others(std::span<State* const> held) override {
    masks_.clear();
    beyond_states_.clear();
    std::vector<Machine::State> moved;
    moved.reserve(held.size());
    std::vector<Machine::State*> moving;
    moving.reserve(held.size());
    for (const State* const state : held) {
      if (*state <= over) continue;
      moving.push_back(&moved.emplace_back(*state - 1));
    }
    machine_.keep_only(moving);
    auto next = moved.begin();
    for (State* const state : held) {
      if (*state > over) *state = outer(*next++);
    }
    bytes_after_forgetting_ = remembered_bytes();
    note_bytes();
  }

  std::size_t bytes() const override { return bytes_.load(std::memory_order_relaxed); }

 private:
  static constexpr State over = 0;  // states of the machine are one more here

  static State outer(Machine::State inner) {
    if (inner == Machine::beyond) return beyond;
    return inner == Machine::dead ? dead : inner + 1;
  }

  std::size_t remembered_bytes() const {
    return machine_.bytes() + masks_.size() * (at(tokens_->vocabulary()) / 8 + sizeof(State));
  }
  void note_bytes() { bytes_.store(grammar_bytes_ + remembered_bytes(), std::memory_order_relaxed); }

  std::uint64_t work_max() const {
    const std::uint64_t of_mask = machine_.work() + guide_mask_work_max;
    if (account_ == Account::none) return of_mask;
    return std::min(of_mask, work_allowed_);
  }

  std::optional<Token> any_of(std::span<const std::uint64_t> mask, Prng& random) const {
    const std::int64_t first = static_cast<std::int64_t>(random.below(at(tokens_->vocabulary())));
    for (std::int64_t step = 0; step < tokens_->vocabulary(); ++step) {
      const std::int64_t token = (first + step) % tokens_->vocabulary();
      if ((mask[at(token) / 64] >> at(token) % 64 & 1U) != 0) return static_cast<Token>(token);
    }
    return std::nullopt;
  }

  // False if that takes too much work.
  bool fill(std::vector<std::uint64_t>& mask, Machine::State state) {
    const auto set = [&](Token token) { mask[at(token) / 64] |= std::uint64_t{1} << at(token) % 64; };
    if (machine_.accepts(state)) {
      for (const Token token : tokens_->ends()) set(token);
    }
    const std::uint64_t most = work_max();
    path_.assign(1, state);  // the states behind each byte of the token before
    for (const TokenTable::Entry& entry : tokens_->entries()) {
      if (entry.shared + 1 > path_.size()) continue;  // it begins with what cannot come
      path_.resize(entry.shared + 1);
      const std::string_view bytes = tokens_->bytes(entry);
      Machine::State inner = path_.back();
      for (std::size_t nth = entry.shared; nth < bytes.size(); ++nth) {
        inner = machine_.next(inner, static_cast<std::uint8_t>(bytes[nth]));
        ++bytes_read_;
        if (inner == Machine::beyond || machine_.work() > most) return false;
        if (inner == Machine::dead) break;
        path_.push_back(inner);
      }
      if (inner != Machine::dead) set(entry.token);
    }
    return true;
  }

  std::shared_ptr<const TokenTable> tokens_;
  std::size_t grammar_bytes_;
  Account account_;
  Machine machine_;
  std::uint64_t work_allowed_ = 0;  // as the machine counts it, since it was made
  std::uint64_t bytes_read_ = 0;    // for masks, along edges that it knew or looked for
  std::map<State, std::vector<std::uint64_t>> masks_;
  std::set<State> beyond_states_;
  std::vector<std::uint64_t> nothing_;
  std::vector<Machine::State> path_;
  std::size_t bytes_after_forgetting_ = 0;
  std::atomic<std::size_t> bytes_ = 0;  // of all of it
};

template <class Add>
Result<std::shared_ptr<Guide>> guide_of(std::shared_ptr<const TokenTable> tokens, Account account,
                                        std::stop_token abandoned, const Add& add) {
  Effort effort(std::move(abandoned));
  auto grammar = std::make_shared<Grammar>();
  const NodeId start = grammar->add();
  auto end = add(*grammar, start, effort);
  if (!end) return std::move(end).error();
  grammar->end_part(*end);
  auto guide = std::make_shared<GrammarGuide>(std::move(tokens), std::move(grammar), start, account);
  if (auto checked = guide->check(effort); !checked) return std::move(checked).error();
  return std::shared_ptr<Guide>(std::move(guide));
}

}  // namespace

TokenTable::TokenTable(std::int64_t vocabulary, const std::function<std::string_view(Token)>& token_bytes,
                       std::vector<Token> ends)
    : places_(at(vocabulary), -1), ends_(std::move(ends)) {
  for (Token token = 0; token < vocabulary; ++token) {
    const std::string_view text = token_bytes(token);
    if (text.empty() || is_end(token)) continue;
    entries_.push_back(
        {token, static_cast<std::uint32_t>(bytes_.size()), static_cast<std::uint32_t>(text.size()), 0});
    bytes_ += text;
  }
  std::sort(entries_.begin(), entries_.end(), [&](const Entry& a, const Entry& b) {
    const auto order = bytes(a).compare(bytes(b));
    return order != 0 ? order < 0 : a.token < b.token;
  });
  for (std::size_t place = 0; place < entries_.size(); ++place) {
    places_[at(entries_[place].token)] = static_cast<std::int32_t>(place);
    if (place == 0) continue;
    const std::string_view before = bytes(entries_[place - 1]);
    const std::string_view own = bytes(entries_[place]);
    const auto [mine, theirs] = std::mismatch(own.begin(), own.end(), before.begin(), before.end());
    entries_[place].shared = static_cast<std::uint32_t>(mine - own.begin());
  }
}

std::string_view TokenTable::bytes(Token token) const {
  if (token < 0 || token >= vocabulary() || places_[at(token)] < 0) return {};
  return bytes(entries_[at(places_[at(token)])]);
}

bool TokenTable::is_end(Token token) const {
  return std::find(ends_.begin(), ends_.end(), token) != ends_.end();
}

Result<std::shared_ptr<Guide>> guide_of_pattern(std::shared_ptr<const TokenTable> tokens,
                                                std::string_view pattern, std::stop_token abandoned) {
  return guide_of(std::move(tokens), Account::kept, std::move(abandoned),
                  [&](Grammar& grammar, NodeId from, Effort& effort) {
                    return add_pattern(grammar, from, pattern, {}, effort);
                  });
}

Result<std::shared_ptr<Guide>> guide_of_schema(std::shared_ptr<const TokenTable> tokens,
                                               std::string_view schema, std::stop_token abandoned) {
  return guide_of(std::move(tokens), Account::kept, std::move(abandoned),
                  [&](Grammar& grammar, NodeId from, Effort& effort) {
                    return add_schema(grammar, from, schema, effort);
                  });
}

Result<std::shared_ptr<Guide>> guide_of_any_object(std::shared_ptr<const TokenTable> tokens) {
  return guide_of(std::move(tokens), Account::none, {},
                  [&](Grammar& grammar, NodeId from, Effort&) { return add_any_object(grammar, from); });
}

}  // namespace tutti::serve
