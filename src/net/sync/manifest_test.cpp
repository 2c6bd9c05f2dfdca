#include "net/sync/manifest.hpp"

#include <cstdint>
#include <limits>

#include <gtest/gtest.h>

#include "net/sync/chunks.hpp"

namespace tutti::sync {
namespace {

using namespace std::string_literals;

const std::string hash(64, 'a');

Entry file(std::string path, Bytes bytes = Bytes(1)) {
  const std::size_t chunks = bytes < Bytes(0) ? 1 : chunk_count(bytes);
  return {.path = std::move(path),
          .kind = Entry::Kind::file,
          .chunks = std::vector<std::string>(chunks, hash),
          .bytes = bytes};
}
Entry folder(std::string path) { return {.path = std::move(path), .kind = Entry::Kind::folder}; }
Entry link(std::string path, std::string target) {
  return {.path = std::move(path), .kind = Entry::Kind::link, .link_target = std::move(target)};
}

// Why a manifest that arrives over the network is refused; nothing if it is not.
std::string refusal(const Manifest& manifest, const Limits& limits = {}) {
  const auto decoded = decode(encode(manifest), limits);
  return decoded ? "" : decoded.error().text();
}

TEST(Manifest, IsReadAsItWasWritten) {
  Manifest manifest{{file("a b\nc"), folder("d"), file("d.txt", Bytes(0)), folder("d/e"),
                     file("d/e/f", gib(9)), link("d/l", "../a b\nc")}};
  manifest.entries[0].executable = true;
  const auto decoded = decode(encode(manifest));
  ASSERT_TRUE(decoded) << decoded.error().text();
  EXPECT_EQ(*decoded, manifest);
  EXPECT_EQ(encode(*decoded), encode(manifest));
  EXPECT_TRUE(decode(encode({})));
}

TEST(Manifest, ADamagedOneIsRefused) {
  const std::string encoded = encode({{folder("d"), file("d/f"), link("l", "d")}});
  EXPECT_FALSE(decode(""));
  EXPECT_FALSE(decode("tutti manifest 2\n"));
  EXPECT_FALSE(decode(encoded + "x"));
  EXPECT_FALSE(decode(encoded + '\0'));
  for (std::size_t length = encoded.size() - 5; length < encoded.size(); ++length) {
    EXPECT_FALSE(decode(std::string_view(encoded).substr(0, length))) << length;
  }
  // A number has one spelling, and none that wraps around.
  for (const auto* number : {"", "01", "-1", "+1", "0x1", "9223372036854775808", "99999999999999999999"}) {
    EXPECT_FALSE(decode("tutti manifest 1\nf " + hash + ' ' + number + " a\0"s)) << number;
  }
  EXPECT_TRUE(decode("tutti manifest 1\nf " + hash + " 1 a\0"s));
}

TEST(Manifest, PathsThatLeaveTheFolderAreRefused) {
  for (const auto& path : {""s, "/"s, "/etc/passwd"s, ".."s, "../a"s, "."s, "./a"s, "d/"s, "d//a"s, "d/../a"s,
                           "d/.."s, "d/."s, std::string(256, 'n')}) {
    EXPECT_NE(refusal({{folder("d"), file(path)}}), "") << path;
    EXPECT_NE(refusal({{folder(path)}}), "") << path;
  }
  EXPECT_FALSE(validate({{file("a\0b"s)}}));
}

TEST(Manifest, PathsOutOfOrderAreRefused) {
  EXPECT_NE(refusal({{file("b"), file("a")}}), "");
  EXPECT_NE(refusal({{file("a"), file("a")}}), "");
  EXPECT_NE(refusal({{file("a"), folder("a")}}), "");
}

TEST(Manifest, WhatIsNotBelowAFolderIsRefused) {
  EXPECT_NE(refusal({{file("a"), file("a/b")}}), "");
  EXPECT_NE(refusal({{link("a", "."), file("a/b")}}), "");
  EXPECT_NE(refusal({{file("a/b")}}), "");
  EXPECT_EQ(refusal({{folder("a"), file("a.b"), file("a/b")}}), "");
}

TEST(Manifest, LinksThatLeadOutAreRefused) {
  for (const auto& target : {""s, "/etc"s, ".."s, "../a"s, "./../a"s, "x/../../a"s}) {
    EXPECT_NE(refusal({{link("l", target)}}), "") << target;
  }
  EXPECT_FALSE(link_stays_inside("l", "a\0b"s));
  EXPECT_FALSE(link_stays_inside("d/e/l", "../../.."));
  // "d/up" is the top of the folder, so that ".." behind it is outside.
  EXPECT_NE(refusal({{folder("d"), link("d/up", ".."), link("l", "d/up/../secret")}}), "");

  EXPECT_TRUE(link_stays_inside("l", "a"));
  EXPECT_TRUE(link_stays_inside("l", "./d//e/"));
  EXPECT_TRUE(link_stays_inside("l", "..a"));
  EXPECT_TRUE(link_stays_inside("d/e/l", "../../a"));
}

TEST(Manifest, AHashIsAHash) {
  for (const auto& wrong : {""s, std::string(63, 'a'), std::string(64, 'A'), "../"s + std::string(61, 'a')}) {
    Entry entry = file("a");
    entry.chunks = {wrong};
    EXPECT_NE(refusal({{entry}}), "") << wrong;
    entry.bytes = chunk_bytes * 2;
    entry.chunks = {hash, wrong};
    EXPECT_NE(refusal({{entry}}), "") << wrong;
  }
}

TEST(Manifest, AFileHasAsManyChunksAsItsSizeAsksFor) {
  EXPECT_EQ(refusal({{file("a", chunk_bytes)}}), "");
  EXPECT_EQ(refusal({{file("a", chunk_bytes + Bytes(1))}}), "");
  for (const std::size_t count : {0U, 1U, 3U}) {
    Entry entry = file("a", chunk_bytes + Bytes(1));
    entry.chunks.assign(count, hash);
    EXPECT_NE(refusal({{entry}}), "") << count;
  }
}

TEST(Manifest, LimitsHold) {
  const Manifest two{{file("a", Bytes(60)), file("b", Bytes(40))}};
  EXPECT_EQ(refusal(two, {.entries_max = 2, .bytes_max = Bytes(100)}), "");
  EXPECT_NE(refusal(two, {.entries_max = 1}), "");
  EXPECT_NE(refusal(two, {.bytes_max = Bytes(99)}), "");
  EXPECT_NE(refusal(two, {.encoded_bytes_max = Bytes(20)}), "");
  EXPECT_FALSE(validate(two, {.entries_max = 1}));
  EXPECT_FALSE(validate({{file("a", Bytes(-1))}}));

  // A sum that would wrap around.
  const Bytes most(std::numeric_limits<std::int64_t>::max());
  Entry large = file("a");
  large.bytes = most;
  Entry other = large;
  other.path = "b";
  EXPECT_NE(refusal({{large, other}}, {.bytes_max = most}), "");
}

TEST(Manifest, ARefusalNamesTheEntryWithoutItsControlBytes) {
  EXPECT_EQ(refusal({{link("a\x1b[2J", "/")}}), "manifest entry 'a?[2J' : the link leads out of the folder");
}

}  // namespace
}  // namespace tutti::sync
