// Whose turn it is: a fair order between keys. Each key is charged for the tokens that are computed for it,
// and the one that was charged least is next; of one key, the oldest. Who comes back after a rest begins
// where the others are: time away is no credit. A key that waits and was given nothing for `patience_steps`
// goes first, whatever it was charged, so that no crowd of new keys can starve it. Counted in steps and
// tokens: no clock. Where there is no memory for who enters or waits, nothing has happened; nothing else
// takes any. Pure, one thread at a time.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>

#include "base/result.hpp"
#include "serve/batch/request.hpp"

namespace tutti::serve {

// One answer of a request. Older requests stand before younger ones.
struct SequenceId {
  RequestId request;
  std::int32_t answer = 0;
  friend auto operator<=>(const SequenceId&, const SequenceId&) = default;
};

class Order {
 public:
  static constexpr std::size_t resting_keys_max = 10'000;  // whose charges are remembered

  explicit Order(std::uint64_t patience_steps) : patience_steps_(patience_steps) {}

  // A key has one more, or one less, request that is not finished.
  void enter(const std::string& key, std::uint64_t step);
  void leave(const std::string& key);

  // This one waits for its turn, or no longer.
  void add(const std::string& key, SequenceId sequence, std::uint64_t step);
  void remove(const std::string& key, SequenceId sequence);
  bool waits(const std::string& key, SequenceId sequence) const;

  // Of those that are not passed over: others of their keys do not come before them.
  std::optional<SequenceId> next(std::uint64_t step, std::span<const SequenceId> passed = {}) const;
  void charge(const std::string& key, std::int64_t tokens, std::uint64_t step);

  std::size_t keys() const { return keys_.size(); }
  // With requests that are not finished.
  std::size_t active() const { return active_.size(); }
  Result<> invariants() const;

 private:
  using Listed = std::set<std::tuple<std::uint64_t, SequenceId>>;
  struct Key {
    std::uint64_t charged = 0;  // tokens
    std::uint64_t given = 0;    // the step in which it got something, or began to wait
    std::int32_t unfinished = 0;
    std::set<SequenceId> waiting;
    // Its places in the lists, while nobody of it waits.
    Listed::node_type by_charge;
    Listed::node_type by_rest;
  };
  using Keys = std::map<std::string, Key>;
  void list(Key& key);
  void unlist(Key& key);

  std::uint64_t patience_steps_;
  Keys keys_;
  std::multiset<std::uint64_t> active_;  // charges of those with requests that are not finished
  std::uint64_t floor_ = 0;              // where who comes back begins
  // Keys with somebody waiting: by charge and age, and by how long they got nothing.
  Listed by_charge_;
  Listed by_rest_;
};

}  // namespace tutti::serve
