#include "comm/reduce.hpp"

#include <cmath>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "comm/kernels.hpp"

namespace tutti::comm {
namespace {

std::vector<const Kernels*> instruction_sets() {
  std::vector<const Kernels*> sets{&scalar_kernels()};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) sets.push_back(&avx2_kernels());
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw"))
    sets.push_back(&avx512_kernels());
#endif
  return sets;
}

void run(const Kernels& set, DataType type, Reduction reduction, void* out,
         std::span<const std::byte* const> sources, std::size_t count, bool stream) {
  std::byte* const target = static_cast<std::byte*>(out);
  const ReduceJob job{&target, 1, sources.data(), sources.size(), count, 0, stream};
  set.reduce[static_cast<std::size_t>(type)][static_cast<std::size_t>(reduction)](job);
}

template <class T>
const std::byte* bytes(const std::vector<T>& data) {
  return reinterpret_cast<const std::byte*>(data.data());
}

// All bit patterns of a 16-bit float through one kernel: widened, kept as it is, narrowed again.
std::vector<std::uint16_t> through(const Kernels& set, DataType type, Reduction reduction,
                                   const std::vector<std::uint16_t>& other) {
  std::vector<std::uint16_t> all(65536);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  std::vector<std::uint16_t> out(all.size());
  const std::byte* const sources[] = {bytes(all), bytes(other)};
  run(set, type, reduction, out.data(), std::span(sources, other.empty() ? 1 : 2), all.size(), false);
  return out;
}

bool is_nan(DataType type, std::uint16_t bits) {
  return type == DataType::f16 ? (bits & 0x7fff) > 0x7c00 : (bits & 0x7fff) > 0x7f80;
}

TEST(Reduce, HalfFloatsSurviveBothWays) {
  for (const Kernels* const set : instruction_sets()) {
    for (const DataType type : {DataType::f16, DataType::bf16}) {
      const auto out = through(*set, type, Reduction::sum, {});
      for (std::size_t i = 0; i < out.size(); ++i) {
        const auto bits = static_cast<std::uint16_t>(i);
        if (is_nan(type, bits)) {
          EXPECT_TRUE(is_nan(type, out[i])) << set->name << " " << i;
        } else {
          EXPECT_EQ(out[i], bits) << set->name << " " << name_of(type) << " " << i;
        }
      }
    }
  }
}

TEST(Reduce, EveryInstructionSetRoundsAlike) {
  std::vector<std::uint16_t> other(65536);
  for (std::size_t i = 0; i < other.size(); ++i) other[i] = static_cast<std::uint16_t>(i * 40503);
  for (const Kernels* const set : instruction_sets()) {
    for (const DataType type : {DataType::f16, DataType::bf16}) {
      for (const Reduction reduction : {Reduction::sum, Reduction::product}) {
        const auto expected = through(scalar_kernels(), type, reduction, other);
        const auto out = through(*set, type, reduction, other);
        for (std::size_t i = 0; i < out.size(); ++i) {
          const bool both_nan = is_nan(type, out[i]) && is_nan(type, expected[i]);
          EXPECT_TRUE(both_nan || out[i] == expected[i]) << set->name << " " << name_of(type) << " " << i;
        }
      }
    }
  }
}

TEST(Reduce, KnownHalves) {
  // 1 + 2^-11 is a tie and goes to even; 65504 is the largest; 2^-24 the smallest.
  const std::vector<std::uint16_t> a{0x3c00, 0x7bff, 0x0001, 0x3c00};
  const std::vector<std::uint16_t> b{0x1000, 0x7bff, 0x0001, 0xbc00};
  const std::vector<std::uint16_t> expected{0x3c00, 0x7c00, 0x0002, 0x0000};
  for (const Kernels* const set : instruction_sets()) {
    std::vector<std::uint16_t> out(4);
    const std::byte* const sources[] = {bytes(a), bytes(b)};
    run(*set, DataType::f16, Reduction::sum, out.data(), sources, 4, false);
    EXPECT_EQ(out, expected) << set->name;
  }
}

TEST(Reduce, AnySizeAndPlaceIsRightWithEitherStore) {
  for (const Kernels* const set : instruction_sets()) {
    for (const std::size_t count : {0UL, 1UL, 15UL, 17UL, 1023UL, 1024UL, 1025UL, 5000UL}) {
      for (const std::size_t shift : {0UL, 1UL, 5UL}) {
        std::vector<std::vector<float>> data;
        std::vector<const std::byte*> sources;
        for (int s = 0; s < 5; ++s) {
          data.emplace_back(count + 8);
          for (std::size_t i = 0; i < count + 8; ++i)
            data.back()[i] = static_cast<float>((i * 7 + static_cast<std::size_t>(s)) % 13);
        }
        for (const auto& one : data)
          sources.push_back(reinterpret_cast<const std::byte*>(one.data() + shift));
        for (const bool stream : {false, true}) {
          for (std::size_t n = 1; n <= 5; ++n) {
            std::vector<float> out(count + 16, -1.0F);
            run(*set, DataType::f32, Reduction::sum, out.data() + 3, std::span(sources).first(n), count,
                stream);
            for (std::size_t i = 0; i < count; ++i) {
              float sum = 0;
              for (std::size_t s = 0; s < n; ++s) sum += data[s][i + shift];
              ASSERT_EQ(out[i + 3], sum) << set->name << " " << count << " " << i;
            }
            EXPECT_EQ(out[2], -1.0F);
            EXPECT_EQ(out[count + 3], -1.0F) << "beyond the end";
          }
        }
      }
    }
  }
}

TEST(Reduce, WholeNumbersWrapAndAveragesAreCutOff) {
  const std::vector<std::int32_t> a{INT32_MAX, 7, -7};
  const std::vector<std::int32_t> b{1, 2, -2};
  const std::byte* const sources[] = {bytes(a), bytes(b)};
  std::vector<std::int32_t> out(3);
  reduce({DataType::i32, Reduction::sum}, reinterpret_cast<std::byte*>(out.data()), sources, 3);
  EXPECT_EQ(out, (std::vector<std::int32_t>{INT32_MIN, 9, -9}));
  reduce({DataType::i32, Reduction::average, 2}, reinterpret_cast<std::byte*>(out.data()), sources, 3);
  EXPECT_EQ(out[1], 4);
}

TEST(Copy, StreamsAnySizeToAnyPlace) {
  std::vector<std::byte> from(10'000);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 31);
  for (const Kernels* const set : instruction_sets()) {
    for (const std::size_t at : {0UL, 1UL, 63UL}) {
      for (const std::size_t size : {0UL, 1UL, 64UL, 65UL, 4097UL}) {
        std::vector<std::byte> to(10'000);
        set->copy_stream(to.data() + at, from.data() + 7, size);
        EXPECT_EQ(std::memcmp(to.data() + at, from.data() + 7, size), 0) << set->name;
        EXPECT_EQ(to[at + size], std::byte{}) << set->name;
      }
    }
  }
}

}  // namespace
}  // namespace tutti::comm
