#include "learn/checkpoint/manifest.hpp"

#include <array>
#include <cmath>
#include <cstdio>

#include <gtest/gtest.h>

#include "base/bytes.hpp"
#include "base/hash/hash.hpp"
#include "learn/checkpoint/made_checkpoint_test.hpp"

namespace tutti::checkpoint {
namespace {

State some_state() {
  return {.step = 100,
          .attempt = 2,
          .mesh = "2x2x2",
          .samples_seen = 12'800,
          .tokens_seen = 13'107'200,
          .seed = std::numeric_limits<std::uint64_t>::max(),
          .loss = 0.1 + 0.2,
          .data_fingerprint = "abc",
          .recipe = "{\"a\":\n 1}",
          .model_config = "{}"};
}

FileRecord some_file() {
  return {
      .name = "rank-00000.safetensors",
      .bytes = block_bytes + 24,
      .blocks = {0, 0xfedcba9876543210U},
      .pieces = {{"model/a", safetensors::Type::f32, {4, 6}, {{2, 0}, {1, 6}}, block_bytes, block_bytes + 24},
                 {"count", safetensors::Type::i64, {}, {{}, {}}, 16, 24}}};
}

// The record with one thing changed in its text; why it is refused.
std::string why_not(const std::string& from, const std::string& to) {
  std::string text = some_file().json();
  const auto at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from << " is not in " << text;
  const auto record = FileRecord::parse(text.replace(at, from.size(), to));
  return record ? "" : record.error().text();
}

TEST(FileRecord, TravelsAsJson) {
  const auto again = FileRecord::parse(some_file().json());
  ASSERT_TRUE(again) << again.error().text();
  EXPECT_EQ(*again, some_file());
}

TEST(FileRecord, WithAWrongFieldIsRefused) {
  EXPECT_FALSE(FileRecord::parse(""));
  EXPECT_FALSE(FileRecord::parse("[]"));
  EXPECT_FALSE(FileRecord::parse("{}"));
  EXPECT_EQ(why_not("\"bytes\":1048600", "\"bytes\":-1"),
            "the record of a file : 'bytes' is missing or wrong");
  EXPECT_EQ(why_not("\"bytes\":1048600", "\"bytes\":24"),
            "rank-00000.safetensors : it has not as many hashes as blocks");
  EXPECT_EQ(why_not("fedcba", "FEDcbx"), "'blocks' are no hashes");
  EXPECT_EQ(why_not("fedcba", "fedcb"), "'blocks' are no hashes");
  EXPECT_EQ(why_not("\"F32\"", "\"F31\""), "a piece : 'type' is missing or wrong");
  EXPECT_EQ(why_not("\"shape\":[4,6]", "\"shape\":[4,-6]"), "a piece : 'shape' is missing or wrong");
  EXPECT_EQ(why_not("\"pieces\":[", "\"pieces\":[1,"), "a piece is no JSON object");
  const std::string in_a = "rank-00000.safetensors: tensor 'model/a' : ";
  EXPECT_EQ(why_not("\"offset\":[2,0]", "\"offset\":[4,0]"), in_a + "a piece does not lie inside it");
  EXPECT_EQ(why_not("\"offset\":[2,0]", "\"offset\":[2]"), in_a + "a piece does not lie inside it");
  EXPECT_EQ(why_not("\"extent\":[1,6]", "\"extent\":[1,5]"),
            in_a + "a piece has not as many bytes as elements");
  EXPECT_EQ(why_not("\"end\":1048600", "\"end\":1048601"), in_a + "a piece does not lie inside its file");
  EXPECT_EQ(why_not("\"shape\":[4,6]", "\"shape\":[4,4611686018427387904]"), in_a + "its shape is none");
}

TEST(FileRecord, NamesAFileInsideTheFolderOnly) {
  for (const char* name : {"", ".", "..", "../x", "a/b", "/etc/passwd", ".hidden", "a\\u0000b", "a b"}) {
    EXPECT_EQ(why_not("rank-00000.safetensors", name), "a file's name is not one inside the folder") << name;
  }
}

TEST(Manifest, IsReadAsItWasWritten) {
  const auto again = decode(encode({some_state(), {some_file(), some_file()}}));
  ASSERT_TRUE(again) << again.error().text();
  EXPECT_EQ(again->files, (std::vector{some_file(), some_file()}));
  const State state = some_state();
  EXPECT_EQ(again->state.step, state.step);
  EXPECT_EQ(again->state.attempt, state.attempt);
  EXPECT_EQ(again->state.mesh, state.mesh);
  EXPECT_EQ(again->state.samples_seen, state.samples_seen);
  EXPECT_EQ(again->state.tokens_seen, state.tokens_seen);
  EXPECT_EQ(again->state.seed, state.seed);
  EXPECT_EQ(again->state.loss, state.loss) << "to the last bit";
  EXPECT_EQ(again->state.data_fingerprint, state.data_fingerprint);
  EXPECT_EQ(again->state.recipe, state.recipe);
  EXPECT_EQ(again->state.model_config, state.model_config);
}

TEST(Manifest, KnowsThatALossIsNotKnown) {
  const auto again = decode(encode({.state = {.step = 1}}));
  ASSERT_TRUE(again) << again.error().text();
  EXPECT_TRUE(std::isnan(again->state.loss));
}

TEST(Manifest, WithAnyBitFlippedIsRefused) {
  const std::string text = encode({some_state(), {some_file()}});
  for (std::size_t at = 0; at < text.size(); ++at) {
    std::string flipped = text;
    flipped[at] = static_cast<char>(flipped[at] ^ 1);
    EXPECT_FALSE(decode(flipped)) << "byte " << at;
    EXPECT_FALSE(decode(text.substr(0, at))) << "cut off at " << at;
  }
}

// A content with a hash that fits: whoever wrote it meant it.
std::string framed(const std::string& content) {
  std::array<char, 17> hash{};
  std::snprintf(hash.data(), hash.size(), "%016llx",
                static_cast<unsigned long long>(hash64(as_bytes(content))));
  return "{\"content\":" + content + ",\n\"hash\":\"" + hash.data() + "\"}\n";
}

TEST(Manifest, OfWrongFieldsIsRefused) {
  const auto why = [](const std::string& content) {
    const auto manifest = decode(framed(content));
    return manifest ? "" : manifest.error().text();
  };
  const std::string format = R"("format":"tutti checkpoint 1")";
  const std::string state =
      R"("state":{"step":1,"attempt":0,"mesh":"","samples_seen":0,"tokens_seen":0,"seed":0,"loss":null,)"
      R"("data_fingerprint":"","recipe":"","model_config":""})";
  EXPECT_EQ(why("{" + format + "," + state + R"(,"files":[]})"), "");
  EXPECT_EQ(why("no JSON"), "the manifest is no JSON object");
  EXPECT_EQ(why("[]"), "the manifest is no JSON object");
  EXPECT_EQ(why("{}"), "the manifest is of another format");
  EXPECT_EQ(why(R"({"format":"tutti checkpoint 2"})"), "the manifest is of another format");
  EXPECT_EQ(why("{" + format + "}"), "the manifest: the state : 'step' is missing or wrong");
  EXPECT_EQ(why("{" + format + R"(,"state":{"step":-1}})"),
            "the manifest: the state : 'step' is missing or wrong");
  EXPECT_EQ(why("{" + format + "," + state + "}"), "the manifest : 'files' is missing or wrong");
  EXPECT_EQ(why("{" + format + "," + state + R"(,"files":[7]})"),
            "the manifest : the record of a file is no JSON object");
  EXPECT_EQ(
      why("{" + format + "," + state + R"(,"files":[{"name":"../x","bytes":0,"blocks":"","pieces":[]}]})"),
      "the manifest : a file's name is not one inside the folder");
}

TEST_F(CheckpointTest, AManifestThatReadersWouldNotTakeIsNotWritten) {
  const Manifest manifest{some_state(), {some_file()}};
  const std::size_t bytes = encode(manifest).size();
  const auto refused = save_manifest(folder(), manifest, bytes - 1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::invalid) << "another try would not change it";
  EXPECT_FALSE(exists(manifest_name));
  ASSERT_TRUE(save_manifest(folder(), manifest, bytes));
  EXPECT_EQ(load_manifest(folder()).value().files, manifest.files);
}

}  // namespace
}  // namespace tutti::checkpoint
