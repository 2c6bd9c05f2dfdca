#include "serve/constrain/constrain.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <new>
#include <set>

#include "base/index.hpp"
#include "base/json/parse.hpp"
#include "base/prng.hpp"
#include "base/scarcity/scarcity.hpp"

namespace tutti::serve {
namespace {

constexpr Token end_token = 0;

// All single bytes, and pieces as models have them.
const std::vector<std::string>& vocabulary_texts() {
  static const std::vector<std::string> texts = [] {
    std::vector<std::string> made{""};
    for (int byte = 0; byte < 256; ++byte) made.emplace_back(1, static_cast<char>(byte));
    for (const char* piece :
         {"{\"",         "\":",          "\",",      "\", \"", "}",     "}}",    "]}",   "true", "false",
          "null",        "nu",           "name",     "age",    "12",    "345",   "0.",   "[[",   "[]",
          "{}",          ": ",           ", ",       "\\n",    "\\u00", "hello", " wor", "ld\"", "a\":1}",
          "caf\xC3\xA9", "\xE2\x82\xAC", "\xE2\x82", "-",      "e1"})
      made.emplace_back(piece);
    return made;
  }();
  return texts;
}

std::string_view text_of(Token token) { return vocabulary_texts()[at(token)]; }

std::shared_ptr<const TokenTable> table() {
  return std::make_shared<TokenTable>(static_cast<std::int64_t>(vocabulary_texts().size()), text_of,
                                      std::vector<Token>{end_token});
}

bool is_set(std::span<const std::uint64_t> mask, Token token) {
  return (mask[at(token) / 64] >> at(token) % 64 & 1U) != 0;
}

// What a schema says of a value, read the plain way.
bool fits(const json::Value& root, const json::Value& schema, const json::Value& value) {
  if (const json::Value* ref = schema.find("$ref")) {
    const json::Value* target = &root;
    if (*ref->text() != "#") target = root.find("$defs")->find(ref->text()->substr(8));
    return fits(root, *target, value);
  }
  if (const json::Value* choices = schema.find("anyOf")) {
    return std::any_of(choices->list()->begin(), choices->list()->end(),
                       [&](const json::Value& choice) { return fits(root, choice, value); });
  }
  if (const json::Value* values = schema.find("enum"))
    return std::find(values->list()->begin(), values->list()->end(), value) != values->list()->end();
  const json::Value* type = schema.find("type");
  if (type == nullptr) return true;
  const std::string& kind = *type->text();
  if (kind == "null") return value.is_null();
  if (kind == "boolean") return value.boolean().has_value();
  if (kind == "integer") return value.whole().has_value();
  if (kind == "number") return value.number().has_value();
  if (kind == "string") return value.text() != nullptr;
  if (kind == "array") {
    if (value.list() == nullptr) return false;
    const json::Value* most = schema.find("maxItems");
    const json::Value* least = schema.find("minItems");
    if (most != nullptr && value.list()->size() > *most->count()) return false;
    if (least != nullptr && value.list()->size() < *least->count()) return false;
    return std::all_of(value.list()->begin(), value.list()->end(),
                       [&](const json::Value& item) { return fits(root, *schema.find("items"), item); });
  }
  if (value.object() == nullptr) return false;
  if (const json::Value* required = schema.find("required")) {
    for (const json::Value& key : *required->list()) {
      if (value.find(*key.text()) == nullptr) return false;
    }
  }
  const json::Value* properties = schema.find("properties");
  return properties == nullptr ||
         std::all_of(value.object()->begin(), value.object()->end(), [&](const json::Member& member) {
           const json::Value* own = properties->find(member.key);
           return own != nullptr && fits(root, *own, member.value);
         });
}

// What no machine without memory can keep a model from, where keys are its own choice.
bool says_a_key_twice(const Result<json::Value>& value) {
  return !value && value.error().message() == json::key_is_there_twice;
}

// An answer of a model that has nothing to say: any token that may come.
std::string babble(Guide& guide, Prng& random, int tokens_max) {
  std::string text;
  Guide::State state = guide.start();
  for (int step = 0; !guide.ended(state); ++step) {
    const auto mask = guide.allowed(state);
    std::vector<Token> may;
    for (Token token = 0; token < static_cast<Token>(vocabulary_texts().size()); ++token) {
      if (is_set(mask, token)) may.push_back(token);
    }
    if (may.empty()) return "astray: " + text;
    // Towards the end what closes comes first.
    Token token = may[random.below(may.size())];
    if (step > tokens_max || random.chance(0.3)) {
      for (const char* closing : {"", "\"", "}", "]", "null", "0", "true"}) {
        const auto found =
            std::find_if(may.begin(), may.end(), [&](Token one) { return text_of(one) == closing; });
        if (found == may.end()) continue;
        token = *found;
        break;
      }
    }
    if (step > 20 * tokens_max) return "endless: " + text;
    text += text_of(token);
    state = guide.next(state, token);
    if (state == Guide::dead) return "dead: " + text;
  }
  return text;
}

TEST(Constrain, WhateverIsBabbledFitsTheSchema) {
  for (
      const char* schema :
      {R"({"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer"},"tags":{"type":"array",
            "items":{"enum":["a","b",3]},"minItems":1,"maxItems":3},"more":{"type":"object"}},"required":["name","age"]})",
       R"({"type":"array","items":{"anyOf":[{"type":"number"},{"type":"null"},{"type":"object","properties":
            {"next":{"$ref":"#"}},"required":["next"]}]}})",
       R"({"$defs":{"tree":{"type":"object","properties":{"left":{"anyOf":[{"type":"null"},{"$ref":"#/$defs/tree"}]},
            "right":{"anyOf":[{"type":"null"},{"$ref":"#/$defs/tree"}]},"value":{"type":"boolean"}},
            "required":["left","right","value"]}},"$ref":"#/$defs/tree"})",
       R"({"type":"string"})", R"({"type":"object"})"}) {
    auto guide = guide_of_schema(table(), schema);
    ASSERT_TRUE(guide.ok()) << guide.error().text();
    const auto root = json::parse(schema);
    ASSERT_TRUE(root.ok());
    Prng random(11);
    for (int turn = 0; turn < 60; ++turn) {
      const std::string text = babble(**guide, random, 40);
      const auto value = json::parse(text);
      if (says_a_key_twice(value)) continue;
      ASSERT_TRUE(value.ok()) << schema << "\n" << text << "\n" << value.error().text();
      ASSERT_TRUE(fits(*root, *root, *value)) << schema << "\n" << text;
    }
  }
}

TEST(Constrain, AnyObjectIsJson) {
  auto guide = guide_of_any_object(table());
  ASSERT_TRUE(guide.ok());
  Prng random(12);
  for (int turn = 0; turn < 100; ++turn) {
    const std::string text = babble(**guide, random, 60);
    const auto value = json::parse(text);
    if (says_a_key_twice(value)) continue;
    ASSERT_TRUE(value.ok()) << text;
    ASSERT_TRUE(value->object() != nullptr) << text;
  }
}

TEST(Constrain, AMaskIsWhatReadingEachTokenAllows) {
  auto guide = guide_of_pattern(table(), "(name|null|[0-9]{1,4}) *(caf\xC3\xA9|\xE2\x82\xAC)?");
  ASSERT_TRUE(guide.ok()) << guide.error().text();
  Prng random(13);
  for (int turn = 0; turn < 50; ++turn) {
    Guide::State state = (*guide)->start();
    for (int step = 0; step < 8; ++step) {
      const auto span = (*guide)->allowed(state);
      const std::vector<std::uint64_t> mask(span.begin(), span.end());
      std::vector<Token> may;
      for (Token token = 0; token < static_cast<Token>(vocabulary_texts().size()); ++token) {
        ASSERT_EQ(is_set(mask, token), (*guide)->next(state, token) != Guide::dead) << text_of(token);
        if (is_set(mask, token)) may.push_back(token);
      }
      if (may.empty()) break;
      state = (*guide)->next(state, may[random.below(may.size())]);
    }
  }
}

TEST(Constrain, TheEndMayComeWhereTheTextIsWhole) {
  auto guide = guide_of_pattern(table(), "12(345)?");
  ASSERT_TRUE(guide.ok());
  const auto token = [](std::string_view text) {
    const auto& all = vocabulary_texts();
    return static_cast<Token>(std::find(all.begin(), all.end(), text) - all.begin());
  };
  const auto start = (*guide)->start();
  EXPECT_FALSE(is_set((*guide)->allowed(start), end_token));
  EXPECT_FALSE((*guide)->ended(start));
  const auto twelve = (*guide)->next(start, token("12"));
  EXPECT_TRUE(is_set((*guide)->allowed(twelve), end_token));
  EXPECT_FALSE((*guide)->ended(twelve)) << "more may follow";
  EXPECT_TRUE((*guide)->ended((*guide)->next(twelve, end_token)));
  EXPECT_TRUE((*guide)->ended((*guide)->next(twelve, token("345")))) << "nothing can be added";
  EXPECT_EQ((*guide)->next(start, token("345")), Guide::dead);
}

// Goes down and up again in ways that no answer has gone before.
Token hostile(std::span<const std::uint64_t> mask, Prng& random) {
  static constexpr std::string_view wanted = "[{\"a:,0]}";
  const auto first = random.below(wanted.size());
  for (std::size_t step = 0; step < wanted.size(); ++step) {
    const auto byte = static_cast<unsigned char>(wanted[(first + step) % wanted.size()]);
    if (is_set(mask, Token{byte} + 1)) return Token{byte} + 1;
  }
  return end_token;
}

TEST(Constrain, AGuideThatManyAnswersHaveFilledGivesWholeJsonToTheNext) {
  auto guide = guide_of_any_object(table());
  ASSERT_TRUE(guide.ok());
  Prng random(14);
  int forgot = 0;
  std::size_t bytes_most = 0;
  // One answer is under way all the time, and is where it was whenever the rest is forgotten.
  const std::string slow = R"({"a":[[{"b":[1,{"c":"d"}]},"e"],{}]})";
  Guide::State slow_state = (*guide)->start();
  std::size_t slow_read = 0;
  for (int step = 0; forgot < 3; ++step) {
    ASSERT_LT(step, 200'000) << "it is filled long before";
    Guide::State state = (*guide)->start();
    for (int token = 0; token < 400 && !(*guide)->ended(state); ++token, ++step) {
      state = (*guide)->next(state, hostile((*guide)->allowed(state), random));
      ASSERT_GE(state, 0);
      bytes_most = std::max(bytes_most, (*guide)->bytes());
      if (!(*guide)->is_crowded()) continue;
      const std::vector<Guide::State*> held{&state, &slow_state};
      (*guide)->forget_others(held);
      ASSERT_FALSE((*guide)->is_crowded());
      ++forgot;
      for (int more = 0; more < 10; ++more) {
        const auto letter = static_cast<unsigned char>(slow[slow_read++]);
        ASSERT_TRUE(is_set((*guide)->allowed(slow_state), Token{letter} + 1)) << slow.substr(0, slow_read);
        slow_state = (*guide)->next(slow_state, Token{letter} + 1);
      }
    }
  }
  for (; slow_read < slow.size(); ++slow_read)
    slow_state = (*guide)->next(slow_state, Token{static_cast<unsigned char>(slow[slow_read])} + 1);
  EXPECT_TRUE((*guide)->ended(slow_state) && slow_state >= 0);
  EXPECT_LT(bytes_most, 2 * guide_bytes_max);
  for (int turn = 0; turn < 30; ++turn) {
    const auto value = json::parse(babble(**guide, random, 40));
    EXPECT_TRUE(value.ok() || says_a_key_twice(value)) << value.error().text();
  }
}

// What there is no memory for is found when there is, and nothing that is known has become wrong: above all
// no state allows more than before.
TEST(Constrain, WhereThereIsNoMemoryAGuideStaysTrue) {
  const std::string_view schema = R"({"type":"object","properties":{"name":{"type":"string"},"age":
      {"type":"array","items":{"anyOf":[{"type":"integer"},{"$ref":"#"}]}}},"required":["age"]})";
  int thrown = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Prng random(seed);
    auto guide = guide_of_schema(table(), schema);
    auto other = guide_of_schema(table(), schema);
    ASSERT_TRUE(guide.ok() && other.ok());
    Guide::State state = (*guide)->start();
    Guide::State other_state = (*other)->start();
    const auto in_want = [&](const auto& work) {
      for (;;) {
        try {
          const Scarcity scarcity(random.chance(0.5) ? random.below(4000) : std::size_t{1} << 30);
          return work();
        } catch (const std::bad_alloc&) {
          ++thrown;
        }
      }
    };
    for (int read = 0; read < 60 && !(*other)->ended(other_state); ++read) {
      const auto expected = (*other)->allowed(other_state);
      const auto mask = in_want([&] { return (*guide)->allowed(state); });
      ASSERT_TRUE(std::ranges::equal(mask, expected)) << "seed " << seed << ", token " << read;
      const Token token = hostile(expected, random);
      other_state = (*other)->next(other_state, token);
      state = in_want([&] { return (*guide)->next(state, token); });
      ASSERT_EQ(state > 0, other_state > 0);
      if (!random.chance(0.2)) continue;
      const std::vector<Guide::State*> held{&state};
      in_want([&] { (*guide)->forget_others(held); });
    }
  }
  EXPECT_GT(thrown, 50);
}

// So many objects that begin alike, with a long text before they differ.
std::string alternatives(int count) {
  std::string list;
  for (int nth = 0; nth < count; ++nth) {
    const std::string key = "\"x" + std::to_string(nth) + "\"";
    list += (nth % 900 == 0 ? (nth == 0 ? R"({"anyOf":[)" : R"(]},{"anyOf":[)") : ",") +
            (R"({"type":"object","properties":{"a":{"$ref":"#/$defs/s"},)" + key +
             R"(:{"type":"null"}},"required":["a",)" + key + "]}");
  }
  return R"({"anyOf":[)" + list + "]}]}";
}

TEST(Constrain, AFormThatTakesTooMuchWorkIsRefused) {
  const std::string defs = R"("$defs":{"s":{"type":"string","minLength":3000}})";
  const auto many = guide_of_schema(table(), "{" + defs + "," + alternatives(1850).substr(1));
  ASSERT_FALSE(many.ok());
  EXPECT_NE(many.error().text().find("too much work"), std::string::npos) << many.error().text();
  const auto some = guide_of_schema(table(), "{" + defs + "," + alternatives(20).substr(1));
  EXPECT_TRUE(some.ok()) << some.error().text();
}

// As many properties, each with a pattern that takes some work.
std::string patterns(int count) {
  std::string list;
  for (int nth = 0; nth < count; ++nth)
    list += (nth == 0 ? "\"p" : ",\"p") + std::to_string(nth) + R"(":{"type":"string","pattern":"(a?){)" +
            std::to_string(100 + nth) + R"(}a{100}"})";
  return R"({"type":"object","properties":{)" + list + "}}";
}

TEST(Constrain, TheWorkOfAllPatternsOfASchemaIsOneSum) {
  const auto one = guide_of_schema(table(), patterns(1));
  EXPECT_TRUE(one.ok()) << one.error().text();
  const auto many = guide_of_schema(table(), patterns(500));
  ASSERT_FALSE(many.ok());
  EXPECT_NE(many.error().text().find("too much work"), std::string::npos) << many.error().text();
}

TEST(Constrain, AClassThatIsReadAThousandTimesIsPaidForAsOften) {
  std::string list;
  for (int nth = 0; nth < 60; ++nth)
    list += (nth == 0 ? "\"p" : ",\"p") + std::to_string(nth) + R"(":{"type":"string","pattern":"^[)" +
            std::string(4'000, 'a') + R"(]{900}$"})";
  const auto refused = guide_of_schema(table(), R"({"type":"object","properties":{)" + list + "}}");
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().text().find("too much work"), std::string::npos) << refused.error().text();
}

TEST(Constrain, WhatIsAbandonedStops) {
  std::stop_source left;
  left.request_stop();
  for (const auto& stopped : {guide_of_schema(table(), patterns(1), left.get_token()),
                              guide_of_pattern(table(), "abc", left.get_token())}) {
    ASSERT_FALSE(stopped.ok());
    EXPECT_EQ(stopped.error().code(), ErrorCode::failed) << stopped.error().text();
  }
}

TEST(Constrain, ALongKeyIsNotRememberedForEachObjectInsideIt) {
  std::string objects;
  for (int nth = 0; nth < 1'000; ++nth) objects += (nth == 0 ? "{\"a\":" : ",{\"a\":") + std::string("1}");
  const auto refused =
      guide_of_schema(table(), R"({"type":"object","properties":{")" + std::string(50'000, 'k') +
                                   R"(":{"anyOf":[)" + objects + "]}}}");
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().text().find("bytes of keys lead there"), std::string::npos)
      << refused.error().text().substr(0, 300);
}

TEST(Constrain, HundredsOfAlternativesWithATagCanBeFollowed) {
  std::string list;
  for (int nth = 0; nth < 800; ++nth) {
    list += (nth == 0 ? "" : ",") +
            (R"({"type":"object","properties":{"tag":{"const":"kind)" + std::to_string(nth)) +
            R"("},"value":{"type":"string"}},"required":["tag","value"]})";
  }
  auto guide = guide_of_schema(table(), R"({"anyOf":[)" + list + "]}");
  ASSERT_TRUE(guide.ok()) << guide.error().text();
  Prng random(15);
  for (int turn = 0; turn < 10; ++turn) {
    const auto value = json::parse(babble(**guide, random, 40));
    ASSERT_TRUE(value.ok()) << value.error().text();
    EXPECT_TRUE(value->find("tag") != nullptr && value->find("value") != nullptr);
  }
}

// Ten thousand values, as wide as a schema can be: whatever is babbled is one of them.
TEST(Constrain, ThousandsOfValuesCanBeFollowed) {
  std::set<std::string> values;
  Prng words(16);
  while (values.size() < 10'000) {
    std::string word;
    for (int letter = 0; letter < 16; ++letter) word += static_cast<char>('a' + words.below(26));
    values.insert(word);
  }
  std::string list;
  for (const std::string& word : values) list += (list.empty() ? "\"" : ",\"") + word + "\"";
  auto guide = guide_of_schema(
      table(), R"({"type":"object","properties":{"a":{"enum":[)" + list + R"(]}},"required":["a"]})");
  ASSERT_TRUE(guide.ok()) << guide.error().text();
  Prng random(17);
  for (int turn = 0; turn < 100; ++turn) {
    const auto value = json::parse(babble(**guide, random, 40));
    ASSERT_TRUE(value.ok()) << value.error().text();
    ASSERT_NE(value->find("a"), nullptr);
    EXPECT_TRUE(values.contains(*value->find("a")->text()));
  }
}

TEST(Constrain, AnAnswerThatComesToTooMuchWorkIsToldSoAndNeverCalledWhole) {
  const std::string schema =
      R"({"$defs":{"s":{"type":"string","minLength":3000}},"type":"object","properties":
      {"a":{"const":")" +
      std::string(200, 'x') + R"("},"b":)" + alternatives(1850) + R"(},"required":["a","b"]})";
  auto guide = guide_of_schema(table(), schema);
  ASSERT_TRUE(guide.ok()) << guide.error().text();
  const std::string text = R"({"a":")" + std::string(200, 'x') + R"(","b":{"a":")" + std::string(2'000, 'y');
  Guide::State state = (*guide)->start();
  for (const char letter : text) {
    const Token token = Token{static_cast<unsigned char>(letter)} + 1;
    if (!is_set((*guide)->allowed(state), token)) break;
    state = (*guide)->next(state, token);
    if (state == Guide::beyond) break;
  }
  EXPECT_TRUE((*guide)->is_beyond(state));
}

TEST(Constrain, WhatHasNoTextIsRefused) {
  EXPECT_FALSE(guide_of_schema(table(), R"({"$defs":{"a":{"$ref":"#/$defs/a"}},"$ref":"#/$defs/a"})").ok());
  EXPECT_FALSE(guide_of_pattern(table(), "[^\\s\\S]").ok());
}

}  // namespace
}  // namespace tutti::serve
