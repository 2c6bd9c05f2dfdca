// What a model knows of a text, as embeddings ask for it, beside the CPU's numbers.
#include <algorithm>
#include <cmath>

#include "serve/check/families.hpp"
#include "serve/check/line.hpp"
#include "serve/check/parts.hpp"
#include "serve/check/rows.hpp"
#include "serve/cpu/model.hpp"

namespace tutti::serve {
namespace {

constexpr std::size_t text_tokens_max = 300;

struct Known {
  std::vector<double> last;
  std::vector<double> mean;
};

// Of a text whose tokens come in such pieces, the last of them again and again.
Result<Known> known_of(Model& model, std::span<const Token> tokens, const std::vector<std::size_t>& pieces) {
  const auto blocks = made_blocks(0, model.limits().context);
  Known known;
  std::size_t done = 0;
  for (std::size_t at = 0; done < tokens.size(); ++at) {
    const std::size_t count = std::min(pieces[std::min(at, pieces.size() - 1)], tokens.size() - done);
    const Chunk chunk{.tokens = tokens.subspan(done, count),
                      .first = static_cast<std::int64_t>(done),
                      .blocks = blocks,
                      .rows = 1};
    if (auto computed = model.step({&chunk, 1}); !computed) return std::move(computed).error();
    const std::vector<Choice> choices{{.given = 0, .pooling = Pooling::mean}, {.pooling = Pooling::last}};
    const auto chosen = model.choose(choices);
    if (!chosen) return chosen.error();
    const Chosen& sum = chosen->front();
    if (sum.hidden_sum.empty() || chosen->back().hidden.empty())
      return failed("the device gives no embeddings");
    known.mean.resize(sum.hidden_sum.size());
    for (std::size_t nth = 0; nth < known.mean.size(); ++nth)
      known.mean[nth] += sum.hidden_sum[nth] / static_cast<double>(tokens.size());
    known.last.assign(chosen->back().hidden.begin(), chosen->back().hidden.end());
    done += count;
  }
  return known;
}

double off_by(const std::vector<double>& numbers, const std::vector<double>& expected) {
  if (numbers.size() != expected.size()) return INFINITY;
  double difference = 0;
  double length = 0;
  for (std::size_t at = 0; at < expected.size(); ++at) {
    difference += std::pow(numbers[at] - expected[at], 2);
    length += expected[at] * expected[at];
  }
  const double off = std::sqrt(difference / length);
  return std::isfinite(off) ? off : INFINITY;
}

Result<> compare_known(const cpu::Family& family, const Print& print) {
  const model::Shape& shape = family.shape;
  const cpu::MadeTensors tensors = cpu::made_tensors(shape);
  const std::vector<Token> tokens = made_tokens(
      shape.vocabulary, std::min(static_cast<std::size_t>(shape.context) - 3, text_tokens_max), 0);
  auto host = cpu::make_model(shape, {.cache_bytes = cpu_cache_bytes, .step_tokens_max = 1024},
                              cpu::reader_of(tensors));
  if (!host) return std::move(host).error();
  const auto expected = known_of(**host, tokens, {tokens.size()});
  if (!expected) return expected.error();
  for (const cuda::Type type : {cuda::Type::f32, cuda::Type::bf16}) {
    const bool is_plain = type == cuda::Type::f32;
    // Rounding to 16 bits sends tokens to other experts.
    if (!is_plain && shape.experts.count > 0) continue;
    auto model = cuda::make_model(shape,
                                  {.type = type,
                                   .blocks_max = (shape.context + 15) / 16,
                                   .step_tokens_max = 1024,
                                   .step_rows_max = 8,
                                   .tunes = false},
                                  cpu::reader_of(tensors));
    if (!model) return std::move(model).error();
    const auto known = known_of(**model, tokens, {130, 1, 1, 64, 17});
    if (!known) return known.error();
    const double last = off_by(known->last, expected->last);
    const double mean = off_by(known->mean, expected->mean);
    print(line("%-24s %-4s embeddings             last is off by %.1e, mean by %.1e", family.name.c_str(),
               is_plain ? "f32" : "bf16", last, mean));
    if (std::max(last, mean) > (is_plain ? f32_error_max : bf16_error_max))
      return failed("its embeddings are not the CPU's").within(family.name);
  }
  return {};
}

}  // namespace

Result<> check_known(const Print& print) {
  for (const cpu::Family& family : checked_families()) {
    if (auto done = compare_known(family, print); !done) return done;
  }
  return {};
}

}  // namespace tutti::serve
