// A model from a folder on a GPU, beside what somebody else's program said of it.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <vector>

#include "base/files/files.hpp"
#include "serve/check/line.hpp"
#include "serve/check/parts.hpp"

namespace tutti::serve {
namespace {

constexpr std::size_t text_bytes_max = std::size_t{1} << 20;
constexpr std::size_t logits_bytes_max = std::size_t{1} << 30;
// Another order of rounding is no worse than the peer's own, within chance.
constexpr double noise_factor_max = 2;

struct Expected {
  std::vector<Token> tokens;
  std::vector<float> logits;
  double noise = 0;
};

Result<Expected> read_expected(const std::string& folder) {
  const auto tokens = files::read_existing_file(folder + "/tokens.txt", text_bytes_max);
  if (!tokens) return tokens.error();
  const auto logits = files::read_existing_file(folder + "/logits.bin", logits_bytes_max);
  if (!logits) return logits.error();
  const auto noise = files::read_existing_file(folder + "/noise.txt", text_bytes_max);
  if (!noise) return noise.error();
  Expected expected;
  std::istringstream words(*tokens);
  for (Token token = 0; words >> token;) expected.tokens.push_back(token);
  expected.logits.resize(logits->size() / sizeof(float));
  std::memcpy(expected.logits.data(), logits->data(), expected.logits.size() * sizeof(float));
  expected.noise = std::strtod(noise->c_str(), nullptr);
  return expected;
}

// The largest distance of a row, in relation to its length.
Result<double> error_of(Model& model, const Expected& expected) {
  const Limits& limits = model.limits();
  const std::size_t count = expected.tokens.size();
  if (count == 0 || expected.logits.size() != count * static_cast<std::size_t>(limits.vocabulary))
    return invalid("logits.bin has not as many rows as tokens.txt has tokens");
  std::vector<BlockId> blocks;
  for (BlockId at = 0; std::int64_t{at} * limits.block_tokens < static_cast<std::int64_t>(count); ++at)
    blocks.push_back(at);
  const Chunk chunk{.tokens = expected.tokens, .blocks = blocks, .rows = static_cast<std::int32_t>(count)};
  if (auto done = model.step({&chunk, 1}); !done) return std::move(done).error();
  double worst = 0;
  for (std::size_t row = 0; row < count; ++row) {
    const auto logits = model.logits(static_cast<std::int32_t>(row));
    if (!logits) return logits.error();
    double difference = 0;
    double length = 0;
    for (std::size_t at = 0; at < logits->size(); ++at) {
      const auto wanted = static_cast<double>(expected.logits[row * logits->size() + at]);
      difference += std::pow(static_cast<double>((*logits)[at]) - wanted, 2);
      length += wanted * wanted;
    }
    const double off = std::sqrt(difference / length);
    worst = std::isfinite(off) ? std::max(worst, off) : INFINITY;
  }
  return worst;
}

}  // namespace

Result<> check_folder(const std::string& folder, const Print& print) {
  const auto expected = read_expected(folder);
  if (!expected) return expected.error();
  for (const cuda::Type type : {cuda::Type::f32, cuda::Type::bf16}) {
    auto model = cuda::open_model(folder, {.type = type,
                                           .memory_bytes = std::uint64_t{2} << 30,
                                           .step_tokens_max = 1024,
                                           .step_rows_max = 1024,
                                           .tunes = false});
    if (!model) return std::move(model).error();
    const auto error = error_of(**model, *expected);
    if (!error) return Error(error.error()).within(folder);
    const bool is_f32 = type == cuda::Type::f32;
    const double allowed = is_f32 ? f32_error_max : noise_factor_max * expected->noise;
    print(line("%-40s %-4s largest error %.1e of %.1e", folder.c_str(), is_f32 ? "f32" : "bf16", *error,
               allowed));
    if (!(*error <= allowed)) return failed("it says something else than its peer").within(folder);
  }
  return {};
}

}  // namespace tutti::serve
