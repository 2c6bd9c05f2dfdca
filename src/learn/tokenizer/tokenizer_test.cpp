#include "learn/tokenizer/tokenizer.hpp"

#include <array>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/json/parse.hpp"
#include "base/json/write.hpp"
#include "learn/tokenizer/definition.hpp"
#include "learn/tokenizer/merges.hpp"

namespace tutti::tokenizer {
namespace {

using json::Value;
using Tokens = std::vector<std::uint32_t>;

const std::string llama3_expression =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

std::string all_bytes() {
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) bytes += static_cast<char>(byte);
  return bytes;
}

const std::vector<std::string>& texts() {
  static const std::vector<std::string> all{
      "",
      "hello world",
      " hello\n\n  world ",
      "naïve café — 文字 한국어 🦊👩‍👩‍👧 e\u0301",
      all_bytes(),
      "<|endoftext|>",
      "a<|endoftext|><|endoftext|>b<|endof",
      "\xFF\xC3(\xE2\x82",
      std::string(5000, 'l'),
      std::string(3, '\0')};
  return all;
}

Value added(const std::string& content, std::uint32_t id, bool normalized = false) {
  return json::Object{{"id", id},        {"content", content}, {"single_word", false},    {"lstrip", false},
                      {"rstrip", false}, {"special", true},    {"normalized", normalized}};
}

// The bytes as 0 to 255, five merges as 256 to 260, and <|endoftext|> as 261.
Value small_file() {
  Value file = *json::parse(write_learned({}));
  std::uint32_t id = 256;
  for (const char* token : {"he", "ll", "hell", "hello", "Ġw"}) file["model"]["vocab"][token] = id++;
  file["model"]["merges"] = json::Array{"h e", "l l", "he ll", "hell o", "Ġ w"};
  file["added_tokens"] = json::Array{added("<|endoftext|>", 261)};
  return file;
}

Tokenizer make(const Value& file) {
  auto made = Tokenizer::parse(json::write(file));
  EXPECT_TRUE(made) << made.error().text();
  return made ? *made : Tokenizer::bytes();
}

Tokens of_bytes(std::string_view text) {
  Tokens tokens;
  for (const char byte : text) tokens.push_back(static_cast<unsigned char>(byte));
  return tokens;
}

TEST(Tokenizer, BytesAreTheirOwnTokens) {
  const Tokenizer tokenizer = Tokenizer::bytes();
  EXPECT_EQ(tokenizer.vocabulary(), 257);
  EXPECT_EQ(tokenizer.end_of_text(), 256U);
  EXPECT_EQ(tokenizer.encode(all_bytes()), of_bytes(all_bytes()));
  EXPECT_EQ(tokenizer.encode("a<|endoftext|>b"), (Tokens{'a', 256, 'b'}));
}

TEST(Tokenizer, WhatGoesInComesOut) {
  Value llama = small_file();
  const json::Object split{{"type", "Split"},
                           {"pattern", json::Object{{"Regex", llama3_expression}}},
                           {"behavior", "Isolated"},
                           {"invert", false}};
  const json::Object bytes{
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  llama["pre_tokenizer"] = json::Object{{"type", "Sequence"}, {"pretokenizers", json::Array{split, bytes}}};
  for (const Tokenizer& tokenizer : {Tokenizer::bytes(), make(small_file()), make(llama)}) {
    for (const auto& text : texts()) EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
  }
}

TEST(Tokenizer, MergesInTheOrderOfTheFile) {
  const Tokenizer tokenizer = make(small_file());
  EXPECT_EQ(tokenizer.vocabulary(), 262);
  EXPECT_EQ(tokenizer.end_of_text(), 261U);
  EXPECT_EQ(tokenizer.encode("hello world"), (Tokens{259, 260, 'o', 'r', 'l', 'd'}));
  EXPECT_EQ(tokenizer.encode("hell"), Tokens{258});
  EXPECT_EQ(tokenizer.encode("lll"), (Tokens{257, 'l'})) << "from left to right";
  EXPECT_EQ(tokenizer.encode("hel lo"), (Tokens{256, 'l', ' ', 'l', 'o'})) << "not across words";
  EXPECT_EQ(tokenizer.decode(Tokens{259, 999999, 261}), "hello<|endoftext|>")
      << "unknown ids are passed over";
}

TEST(Tokenizer, BothNotationsOfMergesAreTheSame) {
  Value pairs = small_file();
  pairs["model"]["merges"] =
      *json::parse(R"([["h", "e"], ["l", "l"], ["he", "ll"], ["hell", "o"], ["Ġ", "w"]])");
  for (const auto& text : texts()) EXPECT_EQ(make(pairs).encode(text), make(small_file()).encode(text));
}

TEST(Tokenizer, AWordThatIsATokenNeedsNoMergesIfTheFileSaysSo) {
  Value file = small_file();
  file["model"]["vocab"]["xyz"] = 261;
  file["added_tokens"] = json::Array{};
  EXPECT_EQ(make(file).encode("xyz"), (Tokens{'x', 'y', 'z'}));
  file["model"]["ignore_merges"] = true;
  EXPECT_EQ(make(file).encode("xyz hello"), (Tokens{261, ' ', 259}));
}

TEST(Tokenizer, AddedTokensAreFoundFirstAndTheLongestWins) {
  Value file = small_file();
  file["added_tokens"] =
      json::Array{added("<a>", 261), added("<a>>", 262), added("lo", 263, true), added("x y", 264)};
  const Tokenizer tokenizer = make(file);
  EXPECT_EQ(tokenizer.encode("<a>>hello<a>"), (Tokens{262, 256, 'l', 263, 261}));
  EXPECT_EQ(tokenizer.encode("x yz"), (Tokens{264, 'z'}));
  EXPECT_EQ(tokenizer.encode("<a"), (Tokens{'<', 'a'}));
  EXPECT_EQ(tokenizer.end_of_text(), std::nullopt);
  file["added_tokens"] = json::Array{added("</s>", 261)};
  EXPECT_EQ(make(file).end_of_text(), 261U);
}

TEST(Tokenizer, PutsABlankBeforeTheTextIfTheFileSaysSo) {
  Value file = small_file();
  file["pre_tokenizer"]["add_prefix_space"] = true;
  EXPECT_EQ(make(file).encode("w<|endoftext|> w"), (Tokens{260, 261, 260}));
}

TEST(Tokenizer, SplitsOnlyIfTheFileSaysSo) {
  Value file = small_file();
  file["model"]["vocab"]["oĠw"] = 261;
  file["model"]["merges"].list()->push_back("o Ġw");
  file["added_tokens"] = json::Array{};
  EXPECT_EQ(make(file).encode("o w"), (Tokens{'o', 260}));
  file["pre_tokenizer"]["use_regex"] = false;
  EXPECT_EQ(make(file).encode("o w"), Tokens{261});
}

TEST(Tokenizer, NormalisesIfTheFileSaysSo) {
  Value file = small_file();
  EXPECT_EQ(make(file).encode("e\u0301"), of_bytes("e\u0301"));
  file["normalizer"] = json::Object{{"type", "NFC"}};
  EXPECT_EQ(make(file).encode("e\u0301"), of_bytes("\u00E9"));
}

TEST(Tokenizer, SpecialTokensAreLettersWhereTheyAreNotAskedFor) {
  Value file = small_file();
  file["added_tokens"] = json::Array{added("<a>", 261), added("<tool>", 262)};
  file["added_tokens"][1]["special"] = false;
  const Tokenizer tokenizer = make(file);
  EXPECT_EQ(tokenizer.encode("<a><tool>", {.special = false}), (Tokens{'<', 'a', '>', 262}));
  EXPECT_EQ(tokenizer.encode("<a>" + tokenizer.guarded("x<a>") + "<a>", {.guards = true}),
            (Tokens{261, 'x', '<', 'a', '>', 261}));
  const std::string guard(guard_letter);
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("x" + guard)), "x" + guard)
      << "without guards they are letters";
  EXPECT_EQ(tokenizer.decode(Tokens{261, 'x', 262}, {.special = false}), "x<tool>");
}

TEST(Tokenizer, PutsItsFrameAroundATextWhenAsked) {
  Value file = small_file();
  const json::Object frame{{"SpecialToken", json::Object{{"id", "E"}, {"type_id", 0}}}};
  const json::Object text{{"Sequence", json::Object{{"id", "A"}, {"type_id", 0}}}};
  const json::Object both{
      {"type", "TemplateProcessing"},
      {"single", json::Array{frame, text, frame, frame}},
      {"pair", json::Array{}},
      {"special_tokens",
       json::Object{
           {"E", json::Object{{"id", "E"}, {"ids", json::Array{261}}, {"tokens", json::Array{"E"}}}}}}};
  file["post_processor"] = json::Object{
      {"type", "Sequence"}, {"processors", json::Array{json::Object{{"type", "ByteLevel"}}, both}}};
  EXPECT_EQ(make(file).encode("hello", {.frame = true}), (Tokens{261, 259, 261, 261}));
  EXPECT_EQ(make(file).encode("hello"), Tokens{259});
  EXPECT_EQ(make(small_file()).encode("hello", {.frame = true}), Tokens{259});
}

TEST(Tokenizer, LongWordsAreNotQuadratic) {
  const Tokenizer tokenizer = make(small_file());
  const std::string word(std::size_t{1} << 20U, 'l');
  EXPECT_EQ(tokenizer.encode(word).size(), word.size() / 2) << "with time n * n this would take an hour";
  std::string almost;
  while (almost.size() < word.size()) almost += "<|endof";
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(almost)), almost);
  EXPECT_EQ(tokenizer.encode(tokenizer.guarded(almost), {.guards = true}), tokenizer.encode(almost));
}

TEST(Tokenizer, WhatNobodyWaitsForIsNotEncoded) {
  const Tokenizer tokenizer = make(small_file());
  std::stop_source left;
  EXPECT_EQ(tokenizer.encode("hello", {.abandoned = left.get_token()}), Tokens{259});
  left.request_stop();
  EXPECT_EQ(tokenizer.encode("hello", {.abandoned = left.get_token()}), Tokens{});
}

// One word may be as long as a text, so that looking between words is not enough.
TEST(Merges, LeaveOffInTheMiddleOfAWord) {
  const Merges merges({{'l', 'l', 256}});
  const Tokens word(10, 'l');
  MergeRoom room;
  Tokens out;
  std::stop_source left;
  merges.apply(word, room, out, left.get_token());
  EXPECT_EQ(out, Tokens(5, 256));
  left.request_stop();
  merges.apply(word, room, out, left.get_token());
  EXPECT_EQ(out, Tokens(5, 256)) << "nothing was added";
}

TEST(Tokenizer, ItsFileMakesTheSameTokenizer) {
  const Tokenizer tokenizer = make(small_file());
  const auto again = Tokenizer::parse(tokenizer.json());
  ASSERT_TRUE(again);
  EXPECT_EQ(again->vocabulary(), tokenizer.vocabulary());
  for (const auto& text : texts()) EXPECT_EQ(again->encode(text), tokenizer.encode(text));
}

TEST(Tokenizer, PiecesGiveTheTokensOfTheWhole) {
  std::string text;
  for (int round = 0; round < 20; ++round)
    text += "hello\nworld.\n\nhello \n  w\r\nlo\n文字。\n字\u3000\nx<|endoftext|>\ny 12\n345";
  for (const Tokenizer& tokenizer : {Tokenizer::bytes(), make(small_file())}) {
    for (std::size_t size = 0; size < 60; ++size) {
      Tokens pieces;
      std::size_t cuts = 0;
      for (std::size_t begin = 0; begin < text.size(); ++cuts) {
        const std::size_t end = tokenizer.next_cut(text, begin + size + 1);
        const auto piece = tokenizer.encode(std::string_view(text).substr(begin, end - begin));
        pieces.insert(pieces.end(), piece.begin(), piece.end());
        begin = end;
      }
      EXPECT_EQ(pieces, tokenizer.encode(text));
      EXPECT_GT(cuts, 10U);
    }
  }
  Value file = small_file();
  file["added_tokens"].list()->push_back(added("\n\n", 262));
  EXPECT_EQ(make(file).next_cut("a\nb", 0), 3U) << "a token may hold a line end";
  EXPECT_EQ(make(small_file()).next_cut("a\nb", 0), 2U);
}

TEST(Tokenizer, RefusesWhatItWouldDoDifferently) {
  const auto refused = [](auto change, const std::string& part) {
    Value file = small_file();
    change(file);
    const auto made = Tokenizer::parse(json::write(file));
    ASSERT_FALSE(made) << part;
    EXPECT_EQ(made.error().code(), ErrorCode::invalid);
    EXPECT_NE(made.error().text().find(part), std::string::npos) << made.error().text();
  };
  refused([](Value& file) { file["model"]["type"] = "WordPiece"; }, "'model.type' is 'WordPiece'");
  refused([](Value& file) { file["model"]["dropout"] = 0.1; }, "'model.dropout' is 0.1");
  refused([](Value& file) { file["model"]["end_of_word_suffix"] = "</w>"; }, "'model.end_of_word_suffix'");
  refused([](Value& file) { file["model"]["magic"] = true; }, "unknown field 'model.magic'");
  refused([](Value& file) { file["model"]["vocab"].object()->erase("Ġ"); }, "for byte 32");
  refused([](Value& file) { file["model"]["vocab"]["he"] = 7; }, "have the id 7");
  refused([](Value& file) { file["model"]["vocab"]["he"] = -1; }, "'model.vocab.he' is -1");
  refused([](Value& file) { file["model"]["vocab"]["he"] = 4294967296; }, "'model.vocab.he'");
  refused([](Value& file) { file["model"]["merges"][2] = "he llx"; }, "'model.merges[2]'");
  refused([](Value& file) { file["model"]["merges"][1] = "a b c"; }, "'model.merges[1]'");
  refused([](Value& file) { file["model"]["merges"] = "h e"; }, "'model.merges'");
  refused([](Value& file) { file["model"] = json::Array{}; }, "'model' is a list");
  refused([](Value& file) { file.object()->erase("model"); }, "'model' is null");
  refused(
      [](Value& file) {
        file["normalizer"] = json::Object{{"type", "Lowercase"}};
      },
      "'normalizer.type' is 'Lowercase'");
  refused(
      [](Value& file) {
        file["truncation"] = json::Object{{"max_length", 5}};
      },
      "'truncation' is an object");
  refused(
      [](Value& file) {
        file["pre_tokenizer"] = json::Object{{"type", "Whitespace"}};
      },
      "'pre_tokenizer.type'");
  refused([](Value& file) { file["pre_tokenizer"] = nullptr; }, "'pre_tokenizer' is null");
  refused(
      [](Value& file) {
        file["pre_tokenizer"] = json::Object{{"type", "Sequence"}, {"pretokenizers", json::Array{1, 2, 3}}};
      },
      "'pre_tokenizer.pretokenizers'");
  refused(
      [](Value& file) {
        const json::Object split{
            {"type", "Split"}, {"pattern", json::Object{{"Regex", "\\d"}}}, {"behavior", "Isolated"}};
        file["pre_tokenizer"] =
            json::Object{{"type", "Sequence"}, {"pretokenizers", json::Array{split, file["pre_tokenizer"]}}};
      },
      "pattern.Regex' is '\\d'");
  refused([](Value& file) { file["decoder"] = json::Object{{"type", "WordPiece"}}; }, "'decoder.type'");
  refused([](Value& file) { file["added_tokens"][0]["lstrip"] = true; }, "'added_tokens.lstrip' is true");
  refused([](Value& file) { file["added_tokens"][0]["id"] = 3; }, "do not agree");
  refused([](Value& file) { file["added_tokens"][0]["content"] = ""; }, "has 0 bytes");
  refused([](Value& file) { file["hidden"] = 1; }, "unknown field 'hidden'");
}

TEST(Tokenizer, RefusesWhatIsNoFile) {
  for (const std::string text : {"", "{", "[]", "null", "\"x\"", "{}", "\xFF"})
    EXPECT_FALSE(Tokenizer::parse(text)) << text;
  EXPECT_FALSE(Tokenizer::parse(std::string(tokenizer_json_bytes_max + 1, ' ')));
  EXPECT_FALSE(Tokenizer::parse(R"({"truncation":)" + std::string(100'000, '[')));
  const std::string deep = R"({"truncation":)" + std::string(100'000, '[') + std::string(100'000, ']') + "}";
  EXPECT_FALSE(Tokenizer::parse(deep));
}

}  // namespace
}  // namespace tutti::tokenizer
