// Many requests at once on a GPU, through the engine, beside the same ones alone.
#include <algorithm>
#include <cmath>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "serve/check/families.hpp"
#include "serve/check/line.hpp"
#include "serve/check/parts.hpp"
#include "serve/engine/engine.hpp"

namespace tutti::serve {
namespace {

constexpr int requests = 300;
constexpr std::uint64_t seed = 11;

std::size_t drawn(std::uint64_t number, std::size_t below) {
  return static_cast<std::size_t>((cpu::made_number(seed * 7919 + number) + 1) / 2 *
                                  static_cast<double>(below));
}

// Some begin alike, so that they share blocks.
std::vector<Request> made_requests(const model::Shape& shape) {
  std::vector<Request> all;
  for (std::uint64_t at = 0; at < requests; ++at) {
    Request request;
    request.key = std::to_string(drawn(at * 10, 3));
    const std::uint64_t beginning = drawn(at * 10 + 1, 4);
    const std::size_t shared = drawn(at * 10 + 2, 50);
    const std::size_t own = drawn(at * 10 + 3, 20) + 1;
    for (std::size_t token = 0; token < shared; ++token) {
      request.prompt.push_back(static_cast<Token>(
          drawn(1'000'000 + beginning * 1000 + token, static_cast<std::size_t>(shape.vocabulary))));
    }
    for (std::size_t token = 0; token < own; ++token) {
      request.prompt.push_back(static_cast<Token>(
          drawn(2'000'000 + at * 100 + token, static_cast<std::size_t>(shape.vocabulary))));
    }
    const auto room = static_cast<std::size_t>(shape.context) - request.prompt.size();
    request.tokens_max = static_cast<std::int32_t>(drawn(at * 10 + 4, std::min<std::size_t>(room, 40))) + 1;
    all.push_back(std::move(request));
  }
  return all;
}

// Two tokens whose logits are as close as this are the same to a device that adds in another order.
constexpr double tie = 1e-4;

// Whether, behind these tokens of an answer, these two were as good as equal to the model alone.
Result<bool> is_tie(Model& model, const Request& request, std::span<const Token> before, Token a, Token b) {
  std::vector<Token> tokens = request.prompt;
  tokens.insert(tokens.end(), before.begin(), before.end());
  std::vector<BlockId> blocks;
  for (BlockId block = 0; std::int64_t{block} * model.limits().block_tokens < model.limits().context; ++block)
    blocks.push_back(block);
  const auto step = static_cast<std::size_t>(model.limits().step_tokens_max);
  for (std::size_t done = 0; done < tokens.size(); done += step) {
    const auto part = std::span(tokens).subspan(done, std::min(step, tokens.size() - done));
    const Chunk chunk{.tokens = part, .first = static_cast<std::int64_t>(done), .blocks = blocks, .rows = 1};
    if (auto computed = model.step({&chunk, 1}); !computed) return std::move(computed).error();
  }
  const auto row = model.logits(0);
  if (!row) return row.error();
  const auto value = [&](Token token) {
    return static_cast<double>((*row)[static_cast<std::size_t>(token)]);
  };
  return std::abs(value(a) - value(b)) <= tie * (1 + std::abs(value(a)));
}

Result<std::vector<Token>> answer_alone(Model& model, const Request& request) {
  std::vector<BlockId> blocks;
  for (BlockId block = 0; std::int64_t{block} * model.limits().block_tokens < model.limits().context; ++block)
    blocks.push_back(block);
  std::vector<Token> answer;
  Chunk chunk{.tokens = request.prompt, .blocks = blocks, .rows = 1};
  const Choice choice;
  Token last = 0;
  while (true) {
    if (auto done = model.step({&chunk, 1}); !done) return std::move(done).error();
    const auto chosen = model.choose({&choice, 1});
    if (!chosen) return chosen.error();
    answer.push_back(last = chosen->front().token);
    if (static_cast<std::int32_t>(answer.size()) == request.tokens_max) return answer;
    chunk.first += static_cast<std::int64_t>(chunk.tokens.size());
    chunk.tokens = {&last, 1};
  }
}

Result<> check_family(const cpu::Family& family, const Print& print) {
  const cpu::MadeTensors tensors = cpu::made_tensors(family.shape);
  const auto made = [&] {
    // So few blocks that sequences must give way.
    return cuda::make_model(family.shape,
                            {.type = cuda::Type::f32,
                             .context_max = 128,
                             .blocks_max = 40,
                             .step_tokens_max = 96,
                             .step_rows_max = 24,
                             .tunes = false},
                            cpu::reader_of(tensors));
  };
  auto alone = made();
  if (!alone) return std::move(alone).error();
  auto together = made();
  if (!together) return std::move(together).error();
  const auto all = made_requests(family.shape);
  std::mutex mutex;
  std::vector<std::vector<Token>> answers(all.size());
  std::string problem;
  // Behind what its receivers write to: it may end before all of them are done.
  Engine engine(std::move(*together), {.sequences_max = 24, .drafts_max = 4},
                [](Token) { return std::string_view("x"); });
  for (std::size_t at = 0; at < all.size(); ++at) {
    const auto id = engine.submit(all[at], [&, at](Piece&& piece) {
      const std::lock_guard lock(mutex);
      answers[at].insert(answers[at].end(), piece.tokens.begin(), piece.tokens.end());
      if (!piece.problem.empty()) problem = piece.problem;
    });
    if (!id) return id.error();
  }
  engine.drain();
  if (!problem.empty()) return failed(problem);
  std::int64_t tokens = 0;
  int different = 0;
  int ties = 0;
  for (std::size_t at = 0; at < all.size(); ++at) {
    const auto expected = answer_alone(**alone, all[at]);
    if (!expected) return expected.error();
    tokens += static_cast<std::int64_t>(expected->size());
    if (*expected == answers[at]) continue;
    const auto parted =
        std::mismatch(expected->begin(), expected->end(), answers[at].begin(), answers[at].end());
    if (parted.first == expected->end() || parted.second == answers[at].end()) {
      ++different;
      continue;
    }
    const auto before =
        std::span(*expected).first(static_cast<std::size_t>(parted.first - expected->begin()));
    const auto tied = is_tie(**alone, all[at], before, *parted.first, *parted.second);
    if (!tied) return tied.error();
    ++(*tied ? ties : different);
  }
  const BatchCounts counts = engine.counts().batch;
  print(
      line("%-24s f32  %d requests, %lld tokens: %d answers differ, %d after a tie; %lld preemptions, %lld "
           "tokens cached, "
           "%lld of %lld "
           "guesses right",
           family.name.c_str(), requests, static_cast<long long>(tokens), different, ties,
           static_cast<long long>(counts.preemptions), static_cast<long long>(counts.cached_tokens),
           static_cast<long long>(counts.accepted_tokens), static_cast<long long>(counts.drafted_tokens)));
  if (different > 0) return failed("answers depend on what is computed beside them").within(family.name);
  return {};
}

}  // namespace

Result<> check_answers(const Print& print) {
  for (const cpu::Family& family : checked_families()) {
    if (family.name != "llama" && family.name != "mixture" && family.name != "gpt2") continue;
    if (auto done = check_family(family, print); !done) return done;
  }
  return {};
}

}  // namespace tutti::serve
