#include "serve/constrain/constrain.hpp"

#include <algorithm>
#include <map>

#include "base/check.hpp"
#include "base/index.hpp"
#include "serve/constrain/machine.hpp"
#include "serve/constrain/pattern.hpp"
#include "serve/constrain/schema.hpp"

namespace tutti::serve {
namespace {

class GrammarGuide final : public Guide {
 public:
  GrammarGuide(std::shared_ptr<const TokenTable> tokens, std::shared_ptr<const Grammar> grammar, NodeId start)
      : tokens_(std::move(tokens)), machine_(std::move(grammar), start) {}

  bool possible() const { return machine_.start() != Machine::dead; }

  State start() override { return machine_.start() + 1; }

  State next(State state, Token token) override {
    if (state == dead || state == over) return dead;
    Machine::State inner = state - 1;
    if (tokens_->is_end(token)) return machine_.accepts(inner) ? over : dead;
    const std::string_view bytes = tokens_->bytes(token);
    if (bytes.empty()) return dead;
    for (const char byte : bytes) {
      inner = machine_.next(inner, static_cast<std::uint8_t>(byte));
      if (inner == Machine::dead) return dead;
    }
    return inner + 1;
  }

  bool ended(State state) override { return state == over || state == dead || !machine_.goes_on(state - 1); }

  std::span<const std::uint64_t> allowed(State state) override {
    const auto known = masks_.find(state);
    if (known != masks_.end()) return known->second;
    if (masks_.size() >= guide_masks_max) masks_.clear();
    auto& mask = masks_[state];
    mask.assign(at(tokens_->vocabulary() + 63) / 64, 0);
    if (state != over && state != dead) fill(mask, state - 1);
    return mask;
  }

 private:
  static constexpr State over = 0;  // states of the machine are one more here

  void fill(std::vector<std::uint64_t>& mask, Machine::State state) {
    const auto set = [&](Token token) { mask[at(token) / 64] |= std::uint64_t{1} << at(token) % 64; };
    if (machine_.accepts(state)) {
      for (const Token token : tokens_->ends()) set(token);
    }
    path_.assign(1, state);  // the states behind each byte of the token before
    for (const TokenTable::Entry& entry : tokens_->entries()) {
      if (entry.shared + 1 > path_.size()) continue;  // it begins with what cannot come
      path_.resize(entry.shared + 1);
      const std::string_view bytes = tokens_->bytes(entry);
      Machine::State inner = path_.back();
      for (std::size_t nth = entry.shared; nth < bytes.size(); ++nth) {
        inner = machine_.next(inner, static_cast<std::uint8_t>(bytes[nth]));
        if (inner == Machine::dead) break;
        path_.push_back(inner);
      }
      if (inner != Machine::dead) set(entry.token);
    }
  }

  std::shared_ptr<const TokenTable> tokens_;
  Machine machine_;
  std::map<State, std::vector<std::uint64_t>> masks_;
  std::vector<Machine::State> path_;
};

template <class Add>
Result<std::shared_ptr<Guide>> guide_of(std::shared_ptr<const TokenTable> tokens, const Add& add) {
  auto grammar = std::make_shared<Grammar>();
  const NodeId start = grammar->add();
  auto end = add(*grammar, start);
  if (!end) return std::move(end).error();
  grammar->end_part(*end);
  auto guide = std::make_shared<GrammarGuide>(std::move(tokens), std::move(grammar), start);
  if (!guide->possible()) return invalid("no answer can have this form");
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
                                                std::string_view pattern) {
  return guide_of(std::move(tokens),
                  [&](Grammar& grammar, NodeId from) { return add_pattern(grammar, from, pattern); });
}

Result<std::shared_ptr<Guide>> guide_of_schema(std::shared_ptr<const TokenTable> tokens,
                                               std::string_view schema) {
  return guide_of(std::move(tokens),
                  [&](Grammar& grammar, NodeId from) { return add_schema(grammar, from, schema); });
}

Result<std::shared_ptr<Guide>> guide_of_any_object(std::shared_ptr<const TokenTable> tokens) {
  return guide_of(std::move(tokens),
                  [&](Grammar& grammar, NodeId from) { return add_any_object(grammar, from); });
}

}  // namespace tutti::serve
