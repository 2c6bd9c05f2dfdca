#include "net/sync/chunks.hpp"

#include "base/bytes.hpp"
#include "net/sync/digest.hpp"
#include "net/sync/folder_test.hpp"

namespace tutti::sync {
namespace {

class Chunks : public FolderTest {};

TEST_F(Chunks, CoverAFileWithoutGapOrOverlap) {
  EXPECT_EQ(chunk_count(Bytes(0)), 1U);
  EXPECT_EQ(chunk_size(Bytes(0), 0), Bytes(0));
  for (const Bytes bytes : {Bytes(1), chunk_bytes - Bytes(1), chunk_bytes, chunk_bytes + Bytes(1), mib(40)}) {
    Bytes sum;
    for (std::size_t at = 0; at < chunk_count(bytes); ++at) {
      EXPECT_GT(chunk_size(bytes, at), Bytes(0));
      EXPECT_LE(chunk_size(bytes, at), chunk_bytes);
      sum += chunk_size(bytes, at);
    }
    EXPECT_EQ(sum, bytes);
  }
  EXPECT_EQ(chunk_count(chunk_bytes), 1U);
  EXPECT_EQ(chunk_count(chunk_bytes + Bytes(1)), 2U);
}

TEST_F(Chunks, AreReadWhereTheyLie) {
  const std::string first(static_cast<std::size_t>(chunk_bytes.count()), 'a');
  write("file", first + "tail");
  const Bytes bytes = chunk_bytes + Bytes(4);
  EXPECT_EQ(read_chunk(path("file"), {bytes, 0, hash_bytes(as_bytes(first))}).value(), first);
  EXPECT_EQ(read_chunk(path("file"), {bytes, 1, hash_bytes(as_bytes("tail"))}).value(), "tail");
}

TEST_F(Chunks, OfAFileThatChangedAreNotSent) {
  write("file", "content");
  const ChunkPlace place{Bytes(7), 0, hash_bytes(as_bytes("content"))};
  EXPECT_TRUE(read_chunk(path("file"), place));
  for (const char* other : {"CONTENT", "short", ""}) {
    write("file", other);
    const auto chunk = read_chunk(path("file"), place);
    ASSERT_FALSE(chunk);
    EXPECT_NE(chunk.error().message().find("changed while it was sent"), std::string::npos);
  }
  std::filesystem::remove(path("file"));
  EXPECT_FALSE(read_chunk(path("file"), place));
}

}  // namespace
}  // namespace tutti::sync
