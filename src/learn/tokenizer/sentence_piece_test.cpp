// Tokenizers in SentencePiece's manner, as Llama 2 and Mistral have them. The expected tokens are those of
// Hugging Face's own library for the same files.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/json/parse.hpp"
#include "base/json/write.hpp"
#include "learn/tokenizer/stream.hpp"
#include "learn/tokenizer/tokenizer.hpp"

namespace tutti::tokenizer {
namespace {

using json::Value;
using Ids = std::vector<std::uint32_t>;

constexpr std::uint32_t first_byte = 3;  // <0x00>
constexpr std::uint32_t pieces_end = 287;

Value parsed(const std::string& text) {
  auto value = json::parse(text);
  EXPECT_TRUE(value) << text;
  return value ? *value : Value();
}

Value special(const std::string& content, std::uint32_t id) {
  return json::Object{{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
                      {"rstrip", false}, {"normalized", false}, {"special", true}};
}

// <unk>, <s>, </s>, the bytes, and from 259 on thirteen letters and what fifteen merges make of them.
Value vocabulary_and_merges() {
  const std::vector<std::string> letters{"▁", "h", "e", "l", "o", "w", "r", "d", "H", "i", "s", "x", "é"};
  const std::vector<std::pair<std::string, std::string>> merges{
      {"h", "e"}, {"l", "l"},   {"he", "ll"}, {"hell", "o"}, {"▁", "hello"},
      {"▁", "w"}, {"o", "r"},   {"▁w", "or"}, {"l", "d"},    {"▁wor", "ld"},
      {"▁", "▁"}, {"▁▁", "▁▁"}, {"H", "i"},   {"▁", "Hi"},   {"▁", "x"}};
  std::vector<std::string> pieces{"<unk>", "<s>", "</s>"};
  static constexpr std::string_view digits = "0123456789ABCDEF";
  for (std::size_t byte = 0; byte < 256; ++byte)
    pieces.push_back(std::string("<0x") + digits[byte / 16] + digits[byte % 16] + ">");
  pieces.insert(pieces.end(), letters.begin(), letters.end());
  json::Array written;
  for (const auto& [left, right] : merges) {
    pieces.push_back(left + right);
    written.push_back(left + " " + right);
  }
  std::vector<json::Member> vocabulary;
  for (std::size_t id = 0; id < pieces.size(); ++id) vocabulary.push_back({pieces[id], id});
  EXPECT_EQ(pieces.size(), pieces_end);
  return json::Object{{"type", "BPE"},
                      {"unk_token", "<unk>"},
                      {"fuse_unk", true},
                      {"byte_fallback", true},
                      {"vocab", json::Object(std::move(vocabulary))},
                      {"merges", std::move(written)}};
}

Value llama2_file() {
  Value file = parsed(
      R"({"version":"1.0","truncation":null,"padding":null,"normalizer":{"type":"Sequence","normalizers":[)"
      R"({"type":"Prepend","prepend":"▁"},{"type":"Replace","pattern":{"String":" "},"content":"▁"}]},)"
      R"("pre_tokenizer":null,"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>",)"
      R"("type_id":0}},{"Sequence":{"id":"A","type_id":0}}],"pair":[],"special_tokens":{"<s>":{"id":"<s>","ids":[1],)"
      R"("tokens":["<s>"]},"</s>":{"id":"</s>","ids":[2],"tokens":["</s>"]}}},"decoder":{"type":"Sequence","decoders":[)"
      R"({"type":"Replace","pattern":{"String":"▁"},"content":" "},{"type":"ByteFallback"},{"type":"Fuse"},)"
      R"({"type":"Strip","content":" ","start":1,"stop":0}]}})");
  file["model"] = vocabulary_and_merges();
  file["added_tokens"] = json::Array{special("<unk>", 0), special("<s>", 1), special("</s>", 2)};
  return file;
}

// No blank is put before what follows a special token.
Value mistral_file() {
  Value file = llama2_file();
  file["normalizer"] = nullptr;
  file["pre_tokenizer"] =
      parsed(R"({"type":"Metaspace","replacement":"▁","prepend_scheme":"first","split":false})");
  file["post_processor"]["single"].list()->push_back(parsed(R"({"SpecialToken":{"id":"</s>","type_id":0}})"));
  file["added_tokens"].list()->push_back(special("[INST]", pieces_end));
  return file;
}

Value split_file() {
  Value file = llama2_file();
  file["normalizer"] = nullptr;
  file["pre_tokenizer"] =
      parsed(R"({"type":"Metaspace","replacement":"▁","prepend_scheme":"always","split":true})");
  file["post_processor"] = nullptr;
  file["decoder"]["decoders"].list()->pop_back();
  return file;
}

Tokenizer loaded(const Value& file) {
  auto made = Tokenizer::parse(json::write(file));
  EXPECT_TRUE(made) << made.error().text();
  return made ? *made : Tokenizer::bytes();
}

struct Case {
  std::string text;
  Ids tokens;           // with the frame
  std::string decoded;  // without special tokens
};

void expect_all(const Tokenizer& tokenizer, const std::vector<Case>& cases) {
  for (const Case& each : cases) {
    EXPECT_EQ(tokenizer.encode(each.text, {.frame = true}), each.tokens) << each.text;
    EXPECT_EQ(tokenizer.decode(each.tokens, {.special = false}), each.decoded) << each.text;
  }
}

TEST(SentencePiece, LikeLlama2) {
  const Tokenizer tokenizer = loaded(llama2_file());
  expect_all(tokenizer, {{"hello world", {1, 276, 281}, "hello world"},
                         {"<s>Hi</s>Hi", {1, 1, 285, 2, 285}, "Hi Hi"},
                         {"Hi  there", {1, 285, 282, 119, 272, 265, 261}, "Hi  there"},
                         {"", {1}, ""},
                         {"  hello", {1, 282, 276}, "  hello"},
                         {"▁x", {1, 282, 270}, " x"},
                         {"é文\n", {1, 259, 271, 233, 153, 138, 13}, "é文\n"},
                         {"x</s> x", {1, 286, 2, 282, 270}, "x  x"},
                         {" ", {1, 282}, " "}});
  EXPECT_EQ(tokenizer.decode(Ids{1, 276}), "<s> hello") << "the blank is not the first letter";
  EXPECT_EQ(tokenizer.decode(Ids{276}, {.continues = true}), " hello") << "behind other text the blank stays";
}

TEST(SentencePiece, LikeMistral) {
  expect_all(loaded(mistral_file()), {{"hello world", {1, 276, 281, 2}, "hello world"},
                                      {"<s>Hi</s>Hi", {1, 1, 284, 2, 284, 2}, "HiHi"},
                                      {"", {1, 2}, ""},
                                      {"  hello", {1, 259, 276, 2}, " hello"},
                                      {"▁x", {1, 286, 2}, "x"},
                                      {"Hi[INST] Hi", {1, 285, 287, 285, 2}, "Hi Hi"},
                                      {" ", {1, 259, 2}, ""}});
}

TEST(SentencePiece, EachBlankBeginsAWordIfTheFileSaysSo) {
  expect_all(loaded(split_file()), {{"hello world", {276, 281}, " hello world"},
                                    {"<s>Hi</s>Hi", {1, 285, 2, 285}, " Hi Hi"},
                                    {"Hi  there", {285, 259, 259, 119, 272, 265, 261}, " Hi  there"},
                                    {"  hello", {259, 276}, "  hello"}});
}

// A merge across the border of two words forbids to cut there.
TEST(SentencePiece, ATokenMayReachOverABlank) {
  Value file = llama2_file();
  EXPECT_EQ(loaded(file).encode("hello x x"), (Ids{276, 286, 286}));
  file["model"]["vocab"]["x▁"] = pieces_end;
  file["model"]["merges"].list()->insert(file["model"]["merges"].list()->begin(), "x ▁");
  EXPECT_EQ(loaded(file).encode("hello x x"), (Ids{276, 259, pieces_end, 270}));
}

TEST(SentencePiece, WhatPeopleWriteIsNoSpecialToken) {
  for (const Value& file : {llama2_file(), mistral_file(), split_file()}) {
    const Tokenizer tokenizer = loaded(file);
    for (const std::string text : {"<s>Hi</s>", "[INST]", "</s>", "<unk><unk>", "<<s>s>"}) {
      for (const auto id : tokenizer.encode(text, {.special = false}))
        EXPECT_FALSE(tokenizer.is_special(id)) << text;
      const std::string whole = "<s>" + tokenizer.guarded(text) + "</s>";
      const Ids tokens = tokenizer.encode(whole, {.guards = true});
      ASSERT_GE(tokens.size(), 3U);
      EXPECT_EQ(tokens.front(), 1U);
      EXPECT_EQ(tokens.back(), 2U);
      for (std::size_t at = 1; at + 1 < tokens.size(); ++at)
        EXPECT_FALSE(tokenizer.is_special(tokens[at])) << text;
      EXPECT_NE(tokenizer.decode(tokens).find(text), std::string::npos) << "no letter is lost";
    }
    EXPECT_EQ(tokenizer.guarded("nothing to guard"), "nothing to guard");
    EXPECT_EQ(tokenizer.guarded(std::string(guard_letter)), "\uFFFD") << "nobody else puts guards in";
  }
}

TEST(SentencePiece, TokensAreBytes) {
  const Tokenizer tokenizer = loaded(llama2_file());
  EXPECT_EQ(tokenizer.token_bytes(276), " hello");
  EXPECT_EQ(tokenizer.token_bytes(first_byte + 0xC3), "\xC3");
  EXPECT_EQ(tokenizer.token_bytes(271), "é");
  EXPECT_EQ(tokenizer.token_bytes(2), "</s>");
  EXPECT_EQ(tokenizer.token_bytes(999999), "");
  EXPECT_TRUE(tokenizer.is_special(2));
  EXPECT_FALSE(tokenizer.is_special(276));
  EXPECT_FALSE(tokenizer.is_special(999999));
  EXPECT_EQ(tokenizer.find("</s>"), 2U);
  EXPECT_EQ(tokenizer.find(""), std::nullopt);
}

TEST(SentencePiece, RefusesWhatItWouldDoDifferently) {
  const auto refused = [](auto change, const std::string& part) {
    Value file = llama2_file();
    change(file);
    const auto made = Tokenizer::parse(json::write(file));
    ASSERT_FALSE(made) << part;
    EXPECT_NE(made.error().text().find(part), std::string::npos) << made.error().text();
  };
  refused([](Value& file) { file["model"]["byte_fallback"] = false; }, "'model.byte_fallback' is false");
  refused([](Value& file) { file["model"]["vocab"].object()->erase("<0x0A>"); }, "for byte 10");
  refused([](Value& file) { file["normalizer"] = nullptr; }, "replaces blanks");
  refused([](Value& file) { file["normalizer"]["normalizers"][0]["prepend"] = "x"; },
          "'normalizer.normalizers.prepend' is 'x'");
  refused([](Value& file) { file["normalizer"]["normalizers"][0]["type"] = "NFKC"; }, "'NFKC'");
  refused([](Value& file) { file["decoder"]["decoders"][3]["start"] = 2; }, "'decoder.decoders.start' is 2");
  refused([](Value& file) { file["decoder"]["decoders"][1]["type"] = "CTC"; },
          "'decoder.decoders.type' is 'CTC'");
  refused([](Value& file) { file["decoder"]["decoders"].list()->clear(); }, "has 0 steps");
  refused([](Value& file) { file["decoder"] = parsed(R"({"type":"Metaspace"})"); },
          "'decoder.type' is 'Metaspace'");
  refused([](Value& file) { file["pre_tokenizer"] = parsed(R"({"type":"Whitespace"})"); },
          "'pre_tokenizer.type'");
  refused([](Value& file) { file["pre_tokenizer"] = parsed(R"({"type":"Metaspace","replacement":"▁"})"); },
          "both put a blank");
  refused([](Value& file) { file["post_processor"]["type"] = "BertProcessing"; }, "'BertProcessing'");
  refused([](Value& file) { file["post_processor"]["single"].list()->pop_back(); }, "no place for the text");
  refused([](Value& file) { file["post_processor"]["special_tokens"]["<s>"]["ids"][0] = 5000; },
          "the token 5000");
  refused([](Value& file) { file["post_processor"]["special_tokens"] = json::Object(); }, "special_tokens");
  refused([](Value& file) { file["model"]["merges"].list()->push_back("< /s>"); }, "'model.merges[15]'");
  refused([](Value& file) { file["added_tokens"].list()->push_back(special("hello", 275)); },
          "makes the special token 'hello'");
}

// ---- streams

std::string streamed(const Tokenizer& tokenizer, const Ids& tokens, const DecodeOptions& options) {
  TextStream stream(tokenizer, options);
  std::string text;
  for (const auto token : tokens) text += stream.add(token);
  return text + stream.finish();
}

TEST(TextStream, GivesTheSameBytesAsAllAtOnce) {
  const std::vector<std::string> texts{"hello world",      " x",       "é文字🦊é", "\xFF\xC3", "\xC3(",
                                       "\xE2\x82",         "\xF0\x9F", "\xED\xA0\x80",   "",         "</s> x",
                                       "a\xF4\x90\x80\x80"};
  for (const Tokenizer& tokenizer : {Tokenizer::bytes(), loaded(llama2_file()), loaded(split_file())}) {
    for (const auto& text : texts) {
      for (const bool special : {true, false}) {
        for (const bool continues : {true, false}) {
          const Ids tokens = tokenizer.encode(text, {.frame = true});
          const DecodeOptions options{.special = special, .continues = continues};
          EXPECT_EQ(streamed(tokenizer, tokens, options), tokenizer.decode(tokens, options)) << text;
        }
      }
    }
  }
}

TEST(TextStream, GivesWholeLettersOnly) {
  TextStream stream(Tokenizer::bytes(), {});
  const std::string fox = "🦊";
  for (std::size_t at = 0; at + 1 < fox.size(); ++at)
    EXPECT_EQ(stream.add(static_cast<unsigned char>(fox[at])), "");
  EXPECT_EQ(stream.add(static_cast<unsigned char>(fox.back())), fox);
  EXPECT_EQ(stream.add(0xC3), "");
  EXPECT_EQ(stream.add('('), "\xC3(") << "no letter can become of it";
  EXPECT_EQ(stream.add(0xE0), "");
  EXPECT_EQ(stream.add(0x80), "\xE0\x80") << "a longer form than needed";
  EXPECT_EQ(stream.add(0xE2), "");
  EXPECT_EQ(stream.finish(), "\xE2");
  EXPECT_EQ(stream.finish(), "");
}

TEST(TextStream, LeavesOutTheBlankAtTheBeginningOfATextAlone) {
  TextStream alone(loaded(llama2_file()), {});
  EXPECT_EQ(alone.add(276), "hello");
  EXPECT_EQ(alone.add(276), " hello");
  TextStream behind(loaded(llama2_file()), {.continues = true});
  EXPECT_EQ(behind.add(276), " hello");
  TextStream quiet(loaded(llama2_file()), {.special = false});
  EXPECT_EQ(quiet.add(1), "");
  EXPECT_EQ(quiet.add(276), "hello");
  EXPECT_EQ(quiet.add(2), "");
}

}  // namespace
}  // namespace tutti::tokenizer
