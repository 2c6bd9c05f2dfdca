#include "learn/checkpoint/read.hpp"

#include <new>
#include <thread>

#include "base/scarcity/scarcity.hpp"
#include "learn/checkpoint/made_checkpoint_test.hpp"

namespace tutti::checkpoint {
namespace {

const Progress silent = [](std::uint64_t, std::uint64_t) {};

std::vector<float> read_floats(const Checkpoint& checkpoint, const std::string& name, const Box& box) {
  std::vector<float> numbers(static_cast<std::size_t>(box.elements()));
  const auto read = checkpoint.read(name, box, std::as_writable_bytes(std::span(numbers)));
  EXPECT_TRUE(read) << read.error().text();
  return numbers;
}

class Read : public CheckpointTest {
 protected:
  Checkpoint open() const {
    auto opened = Checkpoint::open(path("step-00000100"));
    EXPECT_TRUE(opened) << opened.error().text();
    return std::move(*opened);
  }

  // 5 MiB in two files: the rows of a matrix by half.
  void write_large() {
    Prng prng(1);
    large_ = make_tensor("model/large", {1280, 1024}, prng);
    std::vector<Rank> ranks(2);
    ranks[0].hold(large_, {{0, 0}, {640, 1024}});
    ranks[1].hold(large_, {{640, 0}, {640, 1024}});
    ASSERT_TRUE(write_checkpoint(folder(), {.step = 100}, ranks));
  }
  std::string why_not(const Box& box) const {
    const Checkpoint checkpoint = open();
    std::vector<float> numbers(static_cast<std::size_t>(box.elements()));
    const auto read = checkpoint.read("model/large", box, std::as_writable_bytes(std::span(numbers)));
    return read ? "" : read.error().text();
  }
  std::string damage_found() const {
    const auto verified = open().verify(silent);
    return verified ? "" : verified.error().text();
  }

  Made large_;
};

// Cuts a box into two along a random dimension, again and again, and gives the parts to random ranks: half of
// them as they are, half as flat ranges of them.
void scatter(const Made& made, std::vector<Rank>& ranks, Prng& prng) {
  std::vector<Box> boxes{whole(made.shape)};
  for (int cuts = 0; cuts < 6 && !made.shape.empty(); ++cuts) {
    const std::size_t index = prng.below(boxes.size());
    const std::size_t dimension = prng.below(made.shape.size());
    Box& first = boxes[index];
    if (first.extent[dimension] < 2) continue;
    Box second = first;
    const std::int64_t at = prng.between(1, first.extent[dimension] - 1);
    first.extent[dimension] = at;
    second.offset[dimension] += at;
    second.extent[dimension] -= at;
    boxes.push_back(second);
  }
  for (const Box& box : boxes) {
    const std::int64_t middle = prng.chance(0.5) ? prng.between(0, box.elements()) : box.elements();
    for (const auto& [begin, end] : {std::pair(std::int64_t{0}, middle), std::pair(middle, box.elements())}) {
      Rank& rank = ranks[prng.below(ranks.size())];
      for (const Box& part : boxes_of_range(box, begin, end)) rank.hold(made, part);
    }
  }
}

Box random_box(const std::vector<std::int64_t>& shape, Prng& prng) {
  Box box = whole(shape);
  for (std::size_t at = 0; at < shape.size(); ++at) {
    box.offset[at] = prng.between(0, shape[at] - 1);
    box.extent[at] = prng.between(1, shape[at] - box.offset[at]);
  }
  return box;
}

TEST_F(Read, AnyMeshGetsWhatAnyOtherWrote) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Prng prng(seed);
    std::vector<Made> tensors;
    tensors.push_back(make_tensor("scalar", {}, prng));
    tensors.push_back(make_tensor("vector", {prng.between(1, 300)}, prng));
    tensors.push_back(make_tensor("matrix", {prng.between(1, 90), prng.between(1, 90)}, prng));
    tensors.push_back(
        make_tensor("cube", {prng.between(1, 20), prng.between(1, 20), prng.between(1, 20)}, prng));
    std::vector<Rank> ranks(8);
    for (const Made& made : tensors) scatter(made, ranks, prng);
    const auto step = static_cast<std::int64_t>(seed);
    ASSERT_TRUE(write_checkpoint(folder(), {.step = step}, ranks));
    const auto checkpoint = Checkpoint::open(folder(), step);
    ASSERT_TRUE(checkpoint) << checkpoint.error().text();
    EXPECT_EQ(checkpoint->tensors().size(), tensors.size());
    for (const Made& made : tensors) {
      EXPECT_EQ(read_floats(*checkpoint, made.name, whole(made.shape)), made.numbers) << "seed " << seed;
      for (int round = 0; round < 20; ++round) {
        const Box box = random_box(made.shape, prng);
        ASSERT_EQ(read_floats(*checkpoint, made.name, box), cut(made, box))
            << "seed " << seed << " " << box.text();
      }
    }
  }
}

TEST_F(Read, TakesOnlyTheBlocksItNeeds) {
  write_large();
  const Checkpoint checkpoint = open();
  EXPECT_EQ(checkpoint.bytes_read(), 0U);
  const Box row{{700, 0}, {1, 1024}};
  EXPECT_EQ(read_floats(checkpoint, "model/large", row), cut(large_, row));
  EXPECT_EQ(checkpoint.bytes_read(), block_bytes);
  const Box next{{701, 10}, {20, 3}};
  EXPECT_EQ(read_floats(checkpoint, "model/large", next), cut(large_, next));
  EXPECT_EQ(checkpoint.bytes_read(), block_bytes) << "what is beside is there already";
  EXPECT_EQ(read_floats(checkpoint, "model/large", whole(large_.shape)), large_.numbers);
  const auto file_bytes = std::filesystem::file_size(path("step-00000100/rank-00000.safetensors"));
  EXPECT_EQ(checkpoint.bytes_read(), 2 * file_bytes) << "each block once";
}

TEST_F(Read, WhatThereWasNoMemoryForIsReadWhenThereIs) {
  write_large();
  const Checkpoint checkpoint = open();
  const Box row{{700, 0}, {1, 1024}};
  std::vector<float> numbers(static_cast<std::size_t>(row.elements()));
  {
    const Scarcity want(block_bytes - 1);
    EXPECT_THROW(
        static_cast<void>(checkpoint.read("model/large", row, std::as_writable_bytes(std::span(numbers)))),
        std::bad_alloc);
  }
  EXPECT_EQ(read_floats(checkpoint, "model/large", row), cut(large_, row));
}

TEST_F(Read, WhatIsNotThereIsSaid) {
  ASSERT_TRUE(write_small_checkpoint(folder(), 100));
  const Checkpoint checkpoint = open();
  EXPECT_EQ(checkpoint.read("model/other", whole({1}), {}).error().message(),
            "there is no tensor 'model/other'");
  EXPECT_EQ(checkpoint.read("model/matrix", {{4, 0}, {1, 6}}, {}).error().message(),
            "tensor 'model/matrix' has no [4:5,0:6]: it is [0:4,0:6]");
  EXPECT_EQ(checkpoint.state().mesh, "2x1x1");
  EXPECT_EQ(checkpoint.path(), path("step-00000100"));
}

TEST_F(Read, AFlippedByteIsFoundAndNamed) {
  write_large();
  EXPECT_EQ(damage_found(), "");
  flip("step-00000100/rank-00001.safetensors", 1'200'000);
  const std::string damaged = path("step-00000100") + " : rank-00001.safetensors: block 1 is damaged";
  EXPECT_EQ(why_not({{640, 0}, {10, 1024}}), "") << "other blocks are as they were";
  EXPECT_EQ(why_not({{0, 0}, {640, 1024}}), "");
  EXPECT_EQ(why_not(whole(large_.shape)), damaged);
  EXPECT_EQ(damage_found(), damaged);
}

TEST_F(Read, ATruncatedFileIsFoundAndNamed) {
  write_large();
  const std::string name = "step-00000100/rank-00000.safetensors";
  std::filesystem::resize_file(path(name), std::filesystem::file_size(path(name)) - 1);
  const std::string damaged =
      path("step-00000100") +
      " : rank-00000.safetensors: block 2 is damaged: cannot read rank-00000.safetensors: it "
      "ends early";
  EXPECT_EQ(why_not({{0, 0}, {10, 1024}}), "");
  EXPECT_EQ(why_not({{639, 0}, {1, 1024}}), damaged);
  EXPECT_EQ(damage_found(), damaged);
}

TEST_F(Read, AMissingFileIsNamed) {
  write_large();
  std::filesystem::remove(path("step-00000100/rank-00001.safetensors"));
  const std::string missing = path("step-00000100") + " : rank-00001.safetensors is missing";
  EXPECT_EQ(why_not({{0, 0}, {640, 1024}}), "") << "nothing of it is wanted";
  EXPECT_EQ(why_not(whole(large_.shape)), missing);
  EXPECT_EQ(damage_found(), missing);
}

TEST_F(Read, AFileThatGrewIsFound) {
  write_large();
  std::ofstream(path("step-00000100/rank-00001.safetensors"), std::ios::app) << "more";
  EXPECT_EQ(damage_found(),
            path("step-00000100") + " : rank-00001.safetensors is longer than it was written");
}

TEST_F(Read, VerifyingTellsHowFarItIs) {
  write_large();
  std::uint64_t last = 0;
  std::uint64_t all = 0;
  const auto verified = open().verify([&](std::uint64_t done, std::uint64_t of) {
    EXPECT_GT(done, last);
    last = done;
    all = of;
  });
  EXPECT_TRUE(verified);
  EXPECT_EQ(last, all);
  EXPECT_GT(all, 5U << 20);
}

TEST_F(Read, TheNewestThatCanBeReadIsOpened) {
  EXPECT_FALSE(open_latest(folder()).value()) << "nothing yet";
  EXPECT_FALSE(open_latest(path("missing")).value());
  for (const std::int64_t step : {9, 10, 11}) ASSERT_TRUE(write_small_checkpoint(folder(), step));
  EXPECT_EQ(open_latest(folder()).value()->state().step, 11);
  EXPECT_EQ(open_latest(folder(), 11).value()->state().step, 10) << "where reading 11 has failed";
  EXPECT_FALSE(open_latest(folder(), 9).value());
  flip("step-00000011/manifest.json", 60);
  EXPECT_EQ(open_latest(folder()).value()->state().step, 10);
  flip("step-00000010/manifest.json", 60);
  flip("step-00000009/manifest.json", 60);
  const auto damaged = open_latest(folder());
  ASSERT_FALSE(damaged) << "not the same as nothing: a training must not silently begin anew";
  EXPECT_NE(damaged.error().text().find("step-00000011"), std::string::npos);
  EXPECT_EQ(damaged.error().code(), ErrorCode::damaged);
  // One of them is there and cannot be read just now, which says nothing of it.
  const std::string manifest = path("step-00000010/manifest.json");
  std::filesystem::remove(manifest);
  std::filesystem::create_symlink(manifest, manifest);
  const auto unread = open_latest(folder());
  ASSERT_FALSE(unread);
  EXPECT_NE(unread.error().text().find("step-00000010"), std::string::npos) << unread.error().text();
  EXPECT_NE(unread.error().code(), ErrorCode::damaged);
}

// A training that goes on removes it while it is read.
TEST_F(Read, OneThatIsHeldIsReadToItsEndThoughItIsRemoved) {
  write_large();
  const Checkpoint held = open();
  const Checkpoint loose = open();
  ASSERT_TRUE(held.hold());
  ASSERT_TRUE(write_small_checkpoint(folder(), 200));
  ASSERT_TRUE(prune(folder(), 1));
  ASSERT_FALSE(exists("step-00000100"));
  EXPECT_EQ(read_floats(held, "model/large", whole(large_.shape)), large_.numbers);
  EXPECT_TRUE(held.verify(silent));
  const auto gone = loose.verify(silent);
  ASSERT_FALSE(gone);
  EXPECT_EQ(gone.error().text(), path("step-00000100") + " : it was removed while it was read");
  EXPECT_EQ(gone.error().code(), ErrorCode::failed) << "nothing of it is damaged";
  EXPECT_EQ(loose.hold().error(), gone.error());
}

TEST_F(Read, TheNewestIsThereHoweverOftenOlderOnesAreRemoved) {
  constexpr std::int64_t last = 50;
  ASSERT_TRUE(write_small_checkpoint(folder(), 1));
  std::jthread training([&] {
    for (std::int64_t step = 2; step <= last; ++step) {
      EXPECT_TRUE(write_small_checkpoint(folder(), step));
      EXPECT_TRUE(prune(folder(), 1));
    }
  });
  for (std::int64_t step = 0; step < last;) {
    const auto latest = hold_latest(folder());
    ASSERT_TRUE(latest) << latest.error().text();
    ASSERT_TRUE(*latest);
    ASSERT_GE((*latest)->state().step, step);
    step = (*latest)->state().step;
    EXPECT_EQ(read_floats(**latest, "model/matrix", {{0, 0}, {4, 6}}).size(), 24U);
  }
}

TEST_F(Read, TheFingerprintIsThatOfWhatWasWritten) {
  for (const std::int64_t step : {1, 2}) ASSERT_TRUE(write_small_checkpoint(folder(), step));
  const auto of = [&](std::int64_t step) { return Checkpoint::open(folder(), step)->fingerprint(); };
  EXPECT_EQ(of(1), of(1));
  EXPECT_NE(of(1), of(2));
}

}  // namespace
}  // namespace tutti::checkpoint
