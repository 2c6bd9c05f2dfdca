#include "learn/checkpoint/write.hpp"

#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include "base/bytes.hpp"
#include "base/hash/hash.hpp"
#include "learn/checkpoint/made_checkpoint_test.hpp"
#include "learn/safetensors/file.hpp"

namespace tutti::checkpoint {
namespace {

using safetensors::Type;

class Write : public CheckpointTest {
 protected:
  // The record is right if the file has these bytes and hashes, and each piece is where it says.
  void expect_written(const FileRecord& record, const std::vector<Piece>& pieces) const {
    const std::string content = read_text(record.name);
    ASSERT_EQ(content.size(), record.bytes);
    std::vector<std::uint64_t> hashes;
    for (std::size_t at = 0; at < content.size(); at += block_bytes) {
      hashes.push_back(hash64(as_bytes(std::string_view(content).substr(at, block_bytes))));
    }
    EXPECT_EQ(record.blocks, hashes);
    const auto file = safetensors::File::open(path(record.name));
    ASSERT_TRUE(file) << file.error().text();
    EXPECT_EQ(file->header().entries.size(), pieces.size());
    ASSERT_EQ(record.pieces.size(), pieces.size());
    for (std::size_t at = 0; at < pieces.size(); ++at) {
      const PieceRecord& piece = record.pieces[at];
      const auto* entry = file->find(piece.tensor + piece.box.text());
      ASSERT_NE(entry, nullptr);
      EXPECT_EQ(entry->begin, piece.begin);
      EXPECT_EQ(entry->end, piece.end);
      EXPECT_EQ(entry->shape, piece.box.extent);
      EXPECT_EQ(hash64(as_bytes(std::string_view(content).substr(piece.begin, piece.end - piece.begin))),
                hash64(pieces[at].bytes));
    }
  }
};

Piece piece_of(const std::string& name, const std::vector<std::byte>& bytes) {
  const auto count = static_cast<std::int64_t>(bytes.size());
  return {name, Type::u8, {count}, {{0}, {count}}, bytes};
}

std::vector<std::byte> noise(std::size_t count) {
  Prng prng(count);
  std::vector<std::byte> bytes(count);
  for (auto& byte : bytes) byte = static_cast<std::byte>(prng.next());
  return bytes;
}

TEST_F(Write, PiecesOfAllSizes) {
  std::vector<std::vector<std::byte>> memory;
  for (const std::size_t count : {20'000'001U, 0U, 1U, 8'388'608U, 3U, 1'048'575U, 1'048'577U})
    memory.push_back(noise(count));
  std::vector<Piece> pieces;
  for (std::size_t at = 0; at < memory.size(); ++at)
    pieces.push_back(piece_of(std::to_string(at), memory[at]));
  const auto record = write_file(folder(), 7, pieces);
  ASSERT_TRUE(record) << record.error().text();
  EXPECT_EQ(record->name, "rank-00007.safetensors");
  expect_written(*record, pieces);
}

TEST_F(Write, MorePiecesThanOneCallTakes) {
  const auto memory = noise(30'000);
  std::vector<Piece> pieces;
  for (std::int64_t at = 0; at < 3000; ++at) {
    pieces.push_back({"t",
                      Type::i16,
                      {3000, 5},
                      {{at, 0}, {1, 5}},
                      std::span(memory).subspan(static_cast<std::size_t>(at) * 10, 10)});
  }
  const auto record = write_file(folder(), 0, pieces);
  ASSERT_TRUE(record) << record.error().text();
  expect_written(*record, pieces);
}

TEST_F(Write, ARankWithoutPiecesHasAFileToo) {
  const auto record = write_file(folder(), 12345678, {});
  ASSERT_TRUE(record) << record.error().text();
  EXPECT_EQ(record->name, "rank-12345678.safetensors");
  expect_written(*record, {});
}

TEST_F(Write, PiecesThatCannotBeAreRefused) {
  const auto memory = noise(8);
  const auto why = [&](const std::vector<Piece>& pieces) {
    const auto record = write_file(folder(), 0, pieces);
    return record ? "" : record.error().text();
  };
  const Piece good{"t", Type::f32, {4}, {{2}, {2}}, memory};
  EXPECT_EQ(why({good, good}), "tensor 't', piece [2:4] : it is there twice");
  Piece outside = good;
  outside.box.offset = {3};
  EXPECT_EQ(why({outside}), "tensor 't', piece [3:5] : it does not lie inside the tensor");
  Piece longer = good;
  longer.type = Type::f64;
  EXPECT_EQ(why({longer}), "tensor 't', piece [2:4] : it has not as many bytes as elements");
  Piece negative = good;
  negative.shape = {-4};
  EXPECT_EQ(why({negative}), "tensor 't', piece [2:4] : the tensor's shape is none");
  EXPECT_FALSE(write_file(path("missing"), 0, std::vector{good}));
  EXPECT_TRUE(names().empty());
}

// A limit on the size of files stops the writing as a full disk does.
TEST_F(Write, WhatDoesNotFitIsSaidAndLeavesNothing) {
  const auto memory = noise(4 << 20);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  const rlimit small{1 << 20, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto record = write_file(folder(), 3, std::vector{piece_of("t", memory)});
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, handler);
  ASSERT_FALSE(record);
  EXPECT_NE(record.error().message().find("rank-00003.safetensors: File too large; it needs 4 MiB, and "),
            std::string::npos)
      << record.error().message();
  EXPECT_FALSE(exists("rank-00003.safetensors"));
}

TEST_F(Write, AFullDiskIsSaidAndLeavesNothing) {
  const std::string disk = path("disk");
  std::filesystem::create_directory(disk);
  if (mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=3m") != 0)
    GTEST_SKIP() << "only root can make a small disk";
  const auto memory = noise(4 << 20);
  const auto record = write_file(disk, 3, std::vector{piece_of("t", memory)});
  const bool left = std::filesystem::exists(disk + "/rank-00003.safetensors");
  const auto smaller = write_file(disk, 3, std::vector{piece_of("t", noise(1 << 20))});
  EXPECT_EQ(umount(disk.c_str()), 0);
  ASSERT_FALSE(record);
  EXPECT_EQ(record.error().message(),
            "cannot write " + disk +
                "/rank-00003.safetensors: No space left on device; it needs 4 MiB, and "
                "3 MiB are free");
  EXPECT_FALSE(left);
  EXPECT_TRUE(smaller);
}

}  // namespace
}  // namespace tutti::checkpoint
