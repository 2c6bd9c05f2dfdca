// Another program and another language: what PyTorch computes of each family in f64 is what answers are made
// of, from files in the form in which such models are published.
#include <stdlib.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>

#include <gtest/gtest.h>

#include "learn/safetensors/file.hpp"
#include "serve/cpu/model.hpp"
#include "serve/cpu/rows_test.hpp"

namespace tutti::serve::cpu {
namespace {

constexpr double error_max = 1e-4;  // relative to the largest logit, f32 against f64

struct Numbers {
  std::vector<std::int64_t> shape;
  std::vector<float> values;
};

Numbers read_numbers(const std::string& path, const std::string& name) {
  const auto file = safetensors::File::open(path);
  EXPECT_TRUE(file) << file.error().text();
  const safetensors::Entry* const entry = file ? file->find(name) : nullptr;
  EXPECT_NE(entry, nullptr) << name;
  if (entry == nullptr) return {};
  Numbers numbers{entry->shape, {}};
  std::int64_t count = 1;
  for (const std::int64_t size : entry->shape) count *= size;
  numbers.values.resize(static_cast<std::size_t>(count));
  EXPECT_TRUE(file->read(entry->begin, std::as_writable_bytes(std::span(numbers.values))));
  return numbers;
}

// The rows of all tokens, computed so many at a time.
Rows rows_of(Model& model, const std::vector<Token>& tokens, std::size_t at_once) {
  const auto blocks = blocks_of(0, tokens.size());
  Rows rows;
  for (std::size_t first = 0; first < tokens.size(); first += at_once) {
    const auto part = std::span(tokens).subspan(first, std::min(at_once, tokens.size() - first));
    const Chunk chunk{.tokens = part,
                      .first = static_cast<std::int64_t>(first),
                      .blocks = blocks,
                      .rows = static_cast<std::int32_t>(part.size())};
    EXPECT_TRUE(model.step({&chunk, 1}));
    for (std::int32_t row = 0; row < chunk.rows; ++row) rows.push_back(model.logits(row).value_or({}));
  }
  return rows;
}

void compare(const std::filesystem::path& folder) {
  const std::string expected = (folder / "expected.safetensors").string();
  const Numbers tokens = read_numbers(expected, "tokens");
  const Numbers logits = read_numbers(expected, "logits");
  ASSERT_EQ(logits.shape.size(), 3U);
  const auto length = static_cast<std::size_t>(logits.shape[1]);
  const auto vocabulary = static_cast<std::size_t>(logits.shape[2]);
  double largest = 0;
  for (const float value : logits.values) largest = std::max(largest, std::abs(static_cast<double>(value)));
  auto model = open_model(folder.string(), {.threads = 2, .cache_bytes = small_cache_bytes});
  ASSERT_TRUE(model) << folder << ": " << model.error().text();
  for (std::size_t text = 0; text < static_cast<std::size_t>(logits.shape[0]); ++text) {
    std::vector<Token> own;
    for (std::size_t at = 0; at < length; ++at)
      own.push_back(static_cast<Token>(tokens.values[text * (length + 1) + at]));
    for (const std::size_t at_once : {length, std::size_t{7}}) {
      const Rows rows = rows_of(**model, own, at_once);
      ASSERT_EQ(rows.size(), length);
      double off = 0;
      for (std::size_t at = 0; at < length; ++at) {
        ASSERT_EQ(rows[at].size(), vocabulary);
        for (std::size_t word = 0; word < vocabulary; ++word)
          off = std::max(off, std::abs(static_cast<double>(rows[at][word]) -
                                       logits.values[(text * length + at) * vocabulary + word]));
      }
      EXPECT_LE(off / largest, error_max) << folder.filename() << ", " << at_once << " at once";
    }
  }
}

TEST(Torch, ComputesTheSameOfEachFamily) {
  if (std::system("/usr/bin/python3 -c 'import torch' 2>/dev/null") != 0)
    GTEST_SKIP() << "python3-torch is not installed";
  std::string folder = (std::filesystem::temp_directory_path() / "tutti-torch-XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string command =
      "OMP_NUM_THREADS=1 /usr/bin/python3 " TUTTI_SOURCE_DIR "/tests/support/torch_families.py all " + folder;
  EXPECT_EQ(std::system(command.c_str()), 0);
  int count = 0;
  for (const auto& each : std::filesystem::directory_iterator(folder)) {
    compare(each.path());
    ++count;
  }
  EXPECT_GE(count, 13);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace tutti::serve::cpu
