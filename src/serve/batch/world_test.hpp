// A small model and a batch that is driven by hand, for tests. One thread at a time.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/index.hpp"
#include "serve/batch/batch.hpp"
#include "serve/batch/toy_test.hpp"

namespace tutti::serve {

inline const Limits small{.vocabulary = 40,
                          .context = 200,
                          .block_tokens = 4,
                          .blocks = 32,
                          .step_tokens_max = 16,
                          .step_rows_max = 8,
                          .adapters = 1};

// A batch with its toy, driven by hand.
struct World {
  Toy toy;
  Batch batch;
  std::uint64_t ids = 0;
  std::map<SequenceId, std::vector<Token>> tokens;
  std::map<SequenceId, std::string> text;
  std::map<SequenceId, Finish> finish;
  std::map<SequenceId, std::string> problem;
  std::vector<RequestId> order;  // in which requests had their first token

  explicit World(const Limits& limits = small, const BatchSettings& settings = {})
      : toy(limits), batch(limits, settings, toy_bytes) {}

  RequestId submit(Request request) {
    const RequestId id(++ids);
    const auto submitted = batch.submit(id, std::move(request));
    EXPECT_TRUE(submitted.ok()) << submitted.error().text();
    return id;
  }
  void take(const std::vector<Piece>& pieces) {
    for (const Piece& piece : pieces) {
      const SequenceId id{piece.request, piece.answer};
      EXPECT_FALSE(finish.contains(id)) << "nothing comes after the end";
      auto& own = tokens[id];
      if (own.empty() && piece.answer == 0 && !piece.tokens.empty()) order.push_back(piece.request);
      own.insert(own.end(), piece.tokens.begin(), piece.tokens.end());
      text[id] += piece.text;
      if (piece.finish) finish[id] = *piece.finish;
      problem[id] += piece.problem;
    }
    const auto checked = batch.invariants();
    ASSERT_TRUE(checked.ok()) << checked.error().text();
  }
  bool step() {
    const Plan& plan = batch.plan();
    if (plan.empty()) {
      take(batch.told());
      return false;
    }
    toy.step(plan.chunks);
    take(batch.take(toy.choose(plan.choices)));
    return true;
  }
  void run() {
    while (!batch.empty()) ASSERT_TRUE(step()) << "requests are left and nothing is planned";
  }
};

inline std::vector<Token> prompt(std::size_t size, Token first = 0) {
  std::vector<Token> tokens(size);
  for (std::size_t nth = 0; nth < size; ++nth) tokens[nth] = static_cast<Token>((at(first) + nth * 7) % 40);
  return tokens;
}

}  // namespace tutti::serve
