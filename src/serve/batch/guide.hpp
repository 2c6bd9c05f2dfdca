// What a constrained answer may go on with: a machine over tokens. serve/constrain makes them of schemas and
// patterns. A guide may be shared by many answers, each in a state of its own; by one thread at a time,
// because it remembers what it has computed. What it remembers may become much: then whoever holds states
// says which, and it forgets the rest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "serve/step/step.hpp"

namespace tutti::serve {

class Guide {
 public:
  using State = std::int32_t;
  static constexpr State dead = -1;    // what was said is not allowed
  static constexpr State beyond = -2;  // it may be allowed: to know takes more work than a guide may do

  Guide() = default;
  Guide(const Guide&) = delete;
  Guide& operator=(const Guide&) = delete;
  virtual ~Guide() = default;

  virtual State start() = 0;
  // One bit a token, those that may come in this state. Good until the guide is asked again.
  virtual std::span<const std::uint64_t> allowed(State state) = 0;
  // allowed() of this state takes no time worth speaking of; and what has been done so far for those that
  // did, in a measure of its own.
  virtual bool knows(State /*state*/) { return true; }
  virtual std::uint64_t work() const { return 0; }
  virtual State next(State state, Token token) = 0;
  // The answer is whole, and nothing can be added to it.
  virtual bool ended(State state) = 0;
  // Nothing was allowed in this state because to find it takes more work than a guide may do.
  virtual bool is_beyond(State state) { return state == beyond; }

  // It remembers more than it should, and is to forget.
  virtual bool is_crowded() { return false; }
  // Forgets all states but these, which may get other names.
  virtual void forget_others(std::span<State* const> /*held*/) {}
  // What it takes of memory, about. Any thread.
  virtual std::size_t bytes() const { return 0; }
};

}  // namespace tutti::serve
