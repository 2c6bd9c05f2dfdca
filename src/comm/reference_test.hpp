// Every collective against a reference computed one element after the other.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "comm/communicator.hpp"

namespace tutti::comm {

// Small whole numbers are exact in every type, so one reference in double serves them all.
inline double value_at(int rank, std::size_t index) {
  return static_cast<double>((static_cast<std::size_t>(rank) * 7 + index * 3) % 4) + 1;
}

inline void put(DataType type, std::byte* place, double value) {
  const auto store = [&](auto typed) { std::memcpy(place, &typed, sizeof typed); };
  switch (type) {
    case DataType::f32:
      store(static_cast<float>(value));
      return;
    case DataType::f64:
      store(value);
      return;
    case DataType::i32:
      store(static_cast<std::int32_t>(value));
      return;
    case DataType::i64:
      store(static_cast<std::int64_t>(value));
      return;
    case DataType::u8:
      store(static_cast<std::uint8_t>(static_cast<std::int64_t>(value)));
      return;
    case DataType::bf16: {
      const auto narrow = static_cast<float>(value);
      std::uint32_t bits = 0;
      std::memcpy(&bits, &narrow, sizeof bits);
      store(static_cast<std::uint16_t>(bits >> 16));
      return;
    }
    case DataType::f16: {
      // Exact for what has at most 11 significant bits and lies in the normal range.
      const auto narrow = static_cast<float>(value);
      std::uint32_t bits = 0;
      std::memcpy(&bits, &narrow, sizeof bits);
      const std::uint32_t exponent = (bits >> 23 & 0xff) - 112;
      store(static_cast<std::uint16_t>(value == 0 ? 0 : exponent << 10 | (bits >> 13 & 0x3ff)));
      return;
    }
  }
}

inline std::vector<std::byte> make(DataType type, int rank, std::size_t count) {
  std::vector<std::byte> data(count * size_of(type));
  for (std::size_t i = 0; i < count; ++i) put(type, data.data() + i * size_of(type), value_at(rank, i));
  return data;
}

inline double combine(Reduction reduction, int ranks, std::size_t index) {
  double result = value_at(0, index);
  for (int rank = 1; rank < ranks; ++rank) {
    const double value = value_at(rank, index);
    switch (reduction) {
      case Reduction::sum:
      case Reduction::average:
        result += value;
        break;
      case Reduction::min:
        result = std::min(result, value);
        break;
      case Reduction::max:
        result = std::max(result, value);
        break;
      case Reduction::product:
        result *= value;
        break;
    }
  }
  return result;
}

// 8 factors of up to 4 are too much for some types; averages are checked where they come out even or in
// floats.
inline bool exact(DataType type, Reduction reduction, int ranks) {
  if (reduction == Reduction::product) return type != DataType::u8 || ranks <= 3;
  if (reduction != Reduction::average) return true;
  const bool power_of_two = (ranks & (ranks - 1)) == 0;
  return power_of_two && type != DataType::i32 && type != DataType::i64 && type != DataType::u8;
}

inline std::vector<std::byte> reduced(DataType type, Reduction reduction, int ranks, std::size_t first,
                                      std::size_t count) {
  std::vector<std::byte> data(count * size_of(type));
  for (std::size_t i = 0; i < count; ++i) {
    double value = combine(reduction, ranks, first + i);
    if (reduction == Reduction::average) value /= ranks;
    put(type, data.data() + i * size_of(type), value);
  }
  return data;
}

inline constexpr std::array all_types{DataType::f32, DataType::f64, DataType::f16, DataType::bf16,
                                      DataType::i32, DataType::i64, DataType::u8};
inline constexpr std::array all_reductions{Reduction::sum, Reduction::average, Reduction::min, Reduction::max,
                                           Reduction::product};

inline std::string what(Communicator& world, DataType type, std::size_t count, std::string_view op) {
  return std::string(op) + " of " + std::to_string(count) + " " + std::string(name_of(type)) + " on rank " +
         std::to_string(world.rank()) + " of " + std::to_string(world.size());
}

inline std::vector<std::byte> slice(const std::vector<std::byte>& data, std::size_t offset,
                                    std::size_t bytes) {
  return {data.begin() + static_cast<std::ptrdiff_t>(offset),
          data.begin() + static_cast<std::ptrdiff_t>(offset + bytes)};
}

inline void check_reductions(Communicator& world, DataType type, std::size_t count) {
  const int ranks = world.size();
  const auto size = static_cast<std::size_t>(ranks);
  const auto in = make(type, world.rank(), count);
  for (const Reduction reduction : all_reductions) {
    if (!exact(type, reduction, ranks)) continue;
    const std::string label = what(world, type, count, name_of(reduction));
    const auto sum = reduced(type, reduction, ranks, 0, count);
    std::vector<std::byte> out(in.size());
    ASSERT_TRUE(world.all_reduce(in.data(), out.data(), count, type, reduction).wait().ok()) << label;
    EXPECT_EQ(out, sum) << "all_reduce " << label;
    auto in_place = in;
    ASSERT_TRUE(world.all_reduce(in_place.data(), in_place.data(), count, type, reduction).wait().ok())
        << label;
    EXPECT_EQ(in_place, sum) << "all_reduce in place " << label;

    const int root = static_cast<int>(count % size);
    std::vector<std::byte> at_root(in.size());
    ASSERT_TRUE(world.reduce(in.data(), at_root.data(), count, type, reduction, root).wait().ok()) << label;
    if (world.rank() == root) {
      EXPECT_EQ(at_root, sum) << "reduce " << label;
    }

    const auto wide = make(type, world.rank(), count * size);
    std::vector<std::byte> part(in.size());
    ASSERT_TRUE(world.reduce_scatter(wide.data(), part.data(), count, type, reduction).wait().ok()) << label;
    EXPECT_EQ(part, reduced(type, reduction, ranks, count * static_cast<std::size_t>(world.rank()), count))
        << "reduce_scatter " << label;
    auto own = wide;
    const std::size_t at = in.size() * static_cast<std::size_t>(world.rank());
    ASSERT_TRUE(world.reduce_scatter(own.data(), own.data() + at, count, type, reduction).wait().ok())
        << label;
    EXPECT_EQ(slice(own, at, in.size()), part) << "reduce_scatter in place " << label;
  }
}

inline void check_moves(Communicator& world, DataType type, std::size_t count) {
  const int ranks = world.size();
  const auto size = static_cast<std::size_t>(ranks);
  const auto me = static_cast<std::size_t>(world.rank());
  const std::size_t bytes = count * size_of(type);
  const std::string label = what(world, type, count, "moves");
  const auto mine = make(type, world.rank(), count);
  std::vector<std::byte> all(bytes * size);
  std::vector<std::byte> expected;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto theirs = make(type, rank, count);
    expected.insert(expected.end(), theirs.begin(), theirs.end());
  }
  ASSERT_TRUE(world.all_gather(mine.data(), all.data(), count, type).wait().ok()) << label;
  EXPECT_EQ(all, expected) << "all_gather " << label;
  std::vector<std::byte> whole(bytes * size);
  std::copy(mine.begin(), mine.end(), whole.begin() + static_cast<std::ptrdiff_t>(me * bytes));
  ASSERT_TRUE(world.all_gather(whole.data() + me * bytes, whole.data(), count, type).wait().ok()) << label;
  EXPECT_EQ(whole, expected) << "all_gather in place " << label;

  const int root = static_cast<int>((count + 1) % size);
  auto data = mine;
  ASSERT_TRUE(world.broadcast(data.data(), count, type, root).wait().ok()) << label;
  EXPECT_EQ(data, make(type, root, count)) << "broadcast " << label;

  std::vector<std::byte> gathered(bytes * size);
  ASSERT_TRUE(world.gather(mine.data(), gathered.data(), count, type, root).wait().ok()) << label;
  if (world.rank() == root) {
    EXPECT_EQ(gathered, expected) << "gather " << label;
  }

  const auto wide = make(type, world.rank(), count * size);
  std::vector<std::byte> part(bytes);
  ASSERT_TRUE(world.scatter(wide.data(), part.data(), count, type, root).wait().ok()) << label;
  EXPECT_EQ(part, slice(make(type, root, count * size), me * bytes, bytes)) << "scatter " << label;

  std::vector<std::byte> blocks;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto block = slice(make(type, rank, count * size), me * bytes, bytes);
    blocks.insert(blocks.end(), block.begin(), block.end());
  }
  std::vector<std::byte> mixed(bytes * size);
  ASSERT_TRUE(world.all_to_all(wide.data(), mixed.data(), count, type).wait().ok()) << label;
  EXPECT_EQ(mixed, blocks) << "all_to_all " << label;
  auto in_place = wide;
  ASSERT_TRUE(world.all_to_all(in_place.data(), in_place.data(), count, type).wait().ok()) << label;
  EXPECT_EQ(in_place, blocks) << "all_to_all in place " << label;
}

inline void check_messages(Communicator& world, std::size_t count) {
  if (world.size() == 1) return;
  const int next = (world.rank() + 1) % world.size();
  const int before = (world.rank() + world.size() - 1) % world.size();
  const auto mine = make(DataType::f32, world.rank(), count);
  std::vector<std::byte> theirs(mine.size());
  std::vector<std::byte> second(mine.size());
  Work first_send = world.send(mine.data(), count, DataType::f32, next);
  Work second_send = world.send(mine.data(), count, DataType::f32, next);
  ASSERT_TRUE(world.recv(theirs.data(), count, DataType::f32, before).wait().ok());
  ASSERT_TRUE(world.recv(second.data(), count, DataType::f32, before).wait().ok());
  ASSERT_TRUE(first_send.wait().ok());
  ASSERT_TRUE(second_send.wait().ok());
  EXPECT_EQ(theirs, make(DataType::f32, before, count));
  EXPECT_EQ(second, theirs);
}

inline void check_everything(Communicator& world) {
  for (const DataType type : all_types) {
    for (const std::size_t count : {0UL, 1UL, 7UL, 1000UL, 20001UL}) {
      check_reductions(world, type, count);
      check_moves(world, type, count);
    }
  }
  check_reductions(world, DataType::f32, 400'003);
  check_moves(world, DataType::f32, 400'003);
  check_messages(world, 1);
  check_messages(world, 400'003);
  EXPECT_TRUE(world.barrier().wait().ok());
}

}  // namespace tutti::comm
