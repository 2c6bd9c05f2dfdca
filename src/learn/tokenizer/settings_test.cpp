#include "learn/tokenizer/settings.hpp"

#include <gtest/gtest.h>

#include "base/json/parse.hpp"
#include "base/json/write.hpp"
#include "learn/tokenizer/definition.hpp"

namespace tutti::tokenizer {
namespace {

using Stops = std::vector<std::uint32_t>;

// The bytes, and from 256 on <|endoftext|>, <s>, <|eot|>.
Tokenizer three_specials(const std::string& post_processor = "null") {
  json::Value file = *json::parse(write_learned({}));
  std::uint32_t id = 256;
  json::Array added;
  for (const char* content : {"<|endoftext|>", "<s>", "<|eot|>"})
    added.push_back(
        json::Object{{"id", id++}, {"content", content}, {"normalized", false}, {"special", true}});
  file["added_tokens"] = std::move(added);
  file["post_processor"] = *json::parse(post_processor);
  auto made = Tokenizer::parse(json::write(file));
  EXPECT_TRUE(made) << made.error().text();
  return *made;
}

const std::string begins_with_s =
    R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}},)"
    R"({"Sequence":{"id":"A","type_id":0}}],"pair":[],"special_tokens":{"<s>":{"id":"<s>","ids":[257],"tokens":["<s>"]}}})";

TokenSettings read(const SettingsFiles& files, const Tokenizer& tokenizer = three_specials()) {
  auto settings = read_settings(files, tokenizer);
  EXPECT_TRUE(settings) << settings.error().text();
  return settings ? *settings : TokenSettings();
}

TEST(Settings, WithoutFilesTheTokenizerSpeaks) {
  const auto settings = read({});
  EXPECT_EQ(settings.begin, std::nullopt);
  EXPECT_EQ(settings.end, std::nullopt);
  EXPECT_EQ(settings.stops, Stops{256});
  EXPECT_TRUE(settings.chat_templates.empty());
  EXPECT_EQ(settings.frame, Tokenizer::Frame());
}

TEST(Settings, TokensAreNamedAsTextsOrAsObjects) {
  const auto settings =
      read({.tokenizer_config =
                R"({"bos_token":"<s>","eos_token":{"content":"<|eot|>","lstrip":false},"pad_token":null})"});
  EXPECT_EQ(settings.begin, 257U);
  EXPECT_EQ(settings.begin_text, "<s>");
  EXPECT_EQ(settings.end, 258U);
  EXPECT_EQ(settings.end_text, "<|eot|>");
  EXPECT_EQ(settings.stops, Stops{258});
  EXPECT_EQ(read({.special_tokens_map = R"({"eos_token":"<s>"})"}).end, 257U);
}

TEST(Settings, AnAnswerStopsAtAnyOfSeveralTokens) {
  EXPECT_EQ(read({.generation_config = R"({"eos_token_id":[258,256]})"}).stops, (Stops{256, 258}));
  EXPECT_EQ(read({.generation_config = R"({"eos_token_id":258})", .config = R"({"eos_token_id":256})"}).stops,
            Stops{258});
  EXPECT_EQ(read({.config = R"({"eos_token_id":256,"bos_token_id":257})"}).stops, Stops{256});
  EXPECT_EQ(read({.config = R"({"bos_token_id":257})"}).begin_text, "<s>");
  EXPECT_EQ(
      read({.tokenizer_config = R"({"eos_token":"<s>"})", .generation_config = R"({"eos_token_id":[258]})"})
          .stops,
      (Stops{257, 258}));
}

TEST(Settings, TheFrameIsThatOfTheFileUnlessLlamasClassMakesItAnew) {
  const Tokenizer framed = three_specials(begins_with_s);
  EXPECT_EQ(framed.encode("a", {.frame = true}), (Stops{257, 'a'}));
  EXPECT_EQ(read({}, framed).frame, framed.frame());
  const std::string tokens = R"("bos_token":"<s>","eos_token":"<|eot|>",)";
  const auto frame = [&](const std::string& config, const Tokenizer& tokenizer) {
    return read({.tokenizer_config = "{" + tokens + config + "}"}, tokenizer).frame;
  };
  EXPECT_EQ(frame(R"("tokenizer_class":"PreTrainedTokenizerFast","add_bos_token":false)", framed).before,
            Stops{257});
  const auto changed =
      frame(R"("tokenizer_class":"LlamaTokenizer","add_bos_token":false,"add_eos_token":true)", framed);
  EXPECT_TRUE(changed.before.empty());
  EXPECT_EQ(changed.after, Stops{258});
  EXPECT_EQ(framed.with_frame(changed).encode("a", {.frame = true}), (Stops{'a', 258}));
  EXPECT_EQ(frame(R"("tokenizer_class":"LlamaTokenizerFast","add_bos_token":true)", three_specials()).before,
            Stops{257});
}

TEST(Settings, ChatTemplatesComeAloneOrWithNamesOrInAFileOfTheirOwn) {
  const auto alone = read({.tokenizer_config = R"({"chat_template":"{{ messages }}"})"}).chat_templates;
  ASSERT_EQ(alone.size(), 1U);
  EXPECT_EQ(alone[0].name, "default");
  EXPECT_EQ(alone[0].text, "{{ messages }}");
  const auto named = read({.tokenizer_config = R"({"chat_template":[{"name":"default","template":"a"},)"
                                               R"({"name":"tool_use","template":"b"}]})"})
                         .chat_templates;
  ASSERT_EQ(named.size(), 2U);
  EXPECT_EQ(named[1].name, "tool_use");
  EXPECT_EQ(named[1].text, "b");
  const auto own =
      read({.tokenizer_config = R"({"chat_template":"old"})", .chat_template = "new"}).chat_templates;
  ASSERT_EQ(own.size(), 1U);
  EXPECT_EQ(own[0].text, "new");
}

TEST(Settings, ToolsMayHaveATemplateOfTheirOwn) {
  TokenSettings settings;
  EXPECT_EQ(find_template(settings, false), nullptr);
  settings.chat_templates = {{"tool_use", "b"}, {"default", "a"}};
  EXPECT_EQ(find_template(settings, false)->text, "a");
  EXPECT_EQ(find_template(settings, true)->text, "b");
  settings.chat_templates = {{"default", "a"}};
  EXPECT_EQ(find_template(settings, true)->text, "a");
}

TEST(Settings, RefusesWhatContradictsTheTokenizerOrIsTooLarge) {
  const auto refused = [](const SettingsFiles& files, const std::string& part) {
    const auto settings = read_settings(files, three_specials());
    ASSERT_FALSE(settings) << part;
    EXPECT_NE(settings.error().text().find(part), std::string::npos) << settings.error().text();
  };
  refused({.tokenizer_config = R"({"eos_token":"</nothing>"})"}, "'eos_token' is '</nothing>'");
  refused({.tokenizer_config = R"({"eos_token":7})"}, "'eos_token' is 7");
  refused({.tokenizer_config = "{"}, "tokenizer_config.json");
  refused({.generation_config = "[]"}, "generation_config.json : it is no JSON object");
  refused({.generation_config = R"({"eos_token_id":-1})"}, "'eos_token_id' is -1");
  refused({.generation_config = R"({"eos_token_id":[1,"x"]})"}, "'eos_token_id' is 'x'");
  refused({.tokenizer_config = R"({"chat_template":{"a":1}})"}, "'chat_template' is an object");
  refused({.tokenizer_config = R"({"chat_template":[{"name":"a"}]})"}, "'chat_template.template'");
  refused({.tokenizer_config = R"({"tokenizer_class":"LlamaTokenizer","add_bos_token":true})"},
          "no such token");
  const std::string large(settings_bytes_max + 1, ' ');
  refused({.config = large}, "config.json : it has more than 16 MiB");
  const std::string long_template(chat_template_bytes_max + 1, 'x');
  refused({.chat_template = long_template}, "more than 1048576 bytes");
}

}  // namespace
}  // namespace tutti::tokenizer
