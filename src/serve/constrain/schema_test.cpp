#include "serve/constrain/schema.hpp"

#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "serve/constrain/reading_test.hpp"

namespace tutti::serve {
namespace {

Reading schema_reading(std::string_view schema) {
  return Reading([&](Grammar& grammar, NodeId from) {
    Effort effort;
    return add_schema(grammar, from, schema, effort);
  });
}

struct Texts {
  std::vector<std::string> taken;
  std::vector<std::string> refused;
};

void expect(std::string_view schema, const Texts& texts) {
  Reading reading = schema_reading(schema);
  ASSERT_EQ(reading.refusal, "") << schema;
  for (const auto& text : texts.taken) EXPECT_TRUE(reading.takes(text)) << schema << " should take " << text;
  for (const auto& text : texts.refused)
    EXPECT_FALSE(reading.takes(text)) << schema << " should not take " << text;
}

TEST(Schema, PlainValues) {
  expect(R"({"type":"integer"})",
         {{"0", "-7", "123"}, {"1.5", "01", "-", "\"1\"", "1e5", std::string(19, '9')}});
  expect(R"({"type":"number"})", {{"0", "-7.25", "1e5", "1.5E-10"}, {"1.", ".5", "1e", "+1", "1e100"}});
  expect(R"({"type":"boolean"})", {{"true", "false"}, {"null", "True"}});
  expect(R"({"type":["string","null"]})", {{"null", "\"a\""}, {"1"}});
  expect(R"({"enum":["a",1,null,{"b":[true]}]})", {{"\"a\"", "1", "null", "{\"b\":[true]}"}, {"\"b\"", "a"}});
  expect(R"({"const":"x\"y"})", {{"\"x\\\"y\""}, {"\"x\""}});
}

TEST(Schema, IntegersWithinTheirBounds) {
  expect(R"({"type":"integer","minimum":0,"maximum":10})",
         {{"0", "7", "10"}, {"-1", "11", "100", "00", "-0", "1.0", ""}});
  expect(R"({"type":["integer","null"],"minimum":0,"maximum":10})",
         {{"0", "10", "null"}, {"-1", "11", "-272747562222424177"}});
  expect(R"({"type":"integer","minimum":0})",
         {{"0", "9", "10", "12345", std::string(18, '9')}, {"-1", "01", std::string(19, '9')}});
  expect(R"({"type":"integer","exclusiveMinimum":0,"exclusiveMaximum":100})",
         {{"1", "99"}, {"0", "100", "-5"}});
  expect(R"({"type":"integer","minimum":-20,"maximum":-3})",
         {{"-20", "-3", "-10"}, {"-21", "-2", "3", "0", "-"}});
  expect(R"({"type":"integer","maximum":-1})", {{"-1", "-" + std::string(18, '9')}, {"0", "1", "-0"}});
  expect(R"({"type":"integer","minimum":1.5,"exclusiveMaximum":4.0})", {{"2", "3"}, {"1", "4"}});
  expect(R"({"type":"integer","minimum":-1e300,"maximum":18446744073709551615})", {{"-5", "5"}, {"a"}});
  expect(R"({"type":"integer","minimum":7,"maximum":7})", {{"7"}, {"6", "8", "77"}});
  const std::pair<int, int> ranges[] = {{-7, 1234}, {95, 1005}, {208, 871}, {-1000, -99}, {0, 999}, {9, 10}};
  for (const auto& [low, high] : ranges) {
    Reading reading = schema_reading(R"({"type":"integer","minimum":)" + std::to_string(low) +
                                     R"(,"maximum":)" + std::to_string(high) + "}");
    ASSERT_EQ(reading.refusal, "");
    for (int value = -1100; value < 1400; ++value)
      EXPECT_EQ(reading.takes(std::to_string(value)), value >= low && value <= high)
          << value << " in " << low << " to " << high;
  }
}

TEST(Schema, NumbersWithinTheirBounds) {
  expect(
      R"({"type":"number","minimum":0,"maximum":1})",
      {{"0", "1", "0.5", "0.0", "1.0", "1.000", "0.123456789012345678"},
       {"-0", "-0.1", "1.1", "1.0001", "2", "10", "0.", "00", "5e-1", "1e0", ".5", "0.1234567890123456789"}});
  expect(R"({"type":"number","exclusiveMinimum":0,"exclusiveMaximum":1})",
         {{"0.5", "0.00000000000001", "0.99999999999999"},
          {"0", "1", "0.0", "1.0", "0.000", "-0.5", "0.999999999999999"}});
  expect(R"({"type":"number","minimum":-1.25,"exclusiveMaximum":2.5})",
         {{"-1.25", "-1.250", "-1", "-0.001", "0", "2", "2.49999", "2.4"},
          {"-1.2501", "-1.3", "-2", "2.5", "2.50", "2.6", "3", "-0", "-0.0"}});
  expect(R"({"type":"number","minimum":-3.5,"maximum":-1.75})",
         {{"-3.5", "-2", "-1.75", "-3.499"}, {"-3.51", "-1.7", "-1", "2", "-4", "-1.7499"}});
  expect(R"({"type":"number","minimum":12.5})",
         {{"12.5", "13", "100", "12.51", "999999999999999999.5"}, {"12", "12.4999", "1", "-13"}});
  expect(R"({"type":"number","maximum":0.1})",
         {{"0.1", "0.0999", "0", "-5", "-123456.75"}, {"0.11", "0.2", "1"}});
  expect(R"({"type":"number","minimum":-3.141592653589793,"maximum":3.141592653589793})",
         {{"3.141592653589793", "-3.14"}, {"3.1415926535897931", "3.1416"}});
  expect(R"({"type":"number","minimum":5,"maximum":5})", {{"5", "5.0"}, {"4.9", "5.1", "5.01"}});
  expect(R"({"type":"number","minimum":1e2,"maximum":1e300,"exclusiveMinimum":99})",
         {{"100", "1000.5"}, {"99.5", "99"}});
  expect(R"({"type":["integer","number","null"],"minimum":1.5})", {{"1.5", "2", "null"}, {"1", "1.4"}});
  expect(R"({"type":"number","minimum":0.1,"exclusiveMinimum":0.1})",
         {{"0.2", "0.10000000000001"}, {"0.1", "0.10", "0.100000000000001"}});
  const std::pair<double, double> ranges[] = {
      {-1.5, 12.25}, {9.75, 10.5}, {0.05, 0.5}, {-100, -9.95}, {99.5, 1001}};
  for (const auto& [low, high] : ranges) {
    Reading reading = schema_reading(R"({"type":"number","minimum":)" + std::to_string(low) +
                                     R"(,"maximum":)" + std::to_string(high) + "}");
    ASSERT_EQ(reading.refusal, "");
    for (int value = -20'000; value < 220'000; value += 7) {
      const double number = value / 100.0;
      std::string text = std::to_string(number);
      text.resize(text.size() - 4);
      EXPECT_EQ(reading.takes(text), number >= low && number <= high)
          << text << " in " << low << " to " << high;
    }
  }
}

// Whatever was written so far, something may follow: no digit leads to where no number is.
TEST(Schema, NoDigitOfANumberLeadsToNowhere) {
  for (const char* bounds : {R"("exclusiveMinimum":0.99999999999999,"maximum":1)",
                             R"("exclusiveMinimum":0,"maximum":0.00000000000001)",
                             R"("exclusiveMinimum":-0.5,"exclusiveMaximum":-0.49999999999998)",
                             R"("minimum":17.125,"exclusiveMaximum":17.126)"}) {
    Reading reading = schema_reading(std::string(R"({"type":"number",)") + bounds + "}");
    ASSERT_EQ(reading.refusal, "") << bounds;
    Machine& machine = *reading.machine;
    std::vector<Machine::State> open{machine.start()};
    for (std::size_t at = 0; at < open.size() && open.size() < 5'000; ++at) {
      int ways = 0;
      for (int byte = 0; byte < 256; ++byte) {
        const Machine::State next = machine.next(open[at], static_cast<std::uint8_t>(byte));
        if (next == Machine::dead) continue;
        ++ways;
        if (std::find(open.begin(), open.end(), next) == open.end()) open.push_back(next);
      }
      EXPECT_TRUE(ways > 0 || machine.accepts(open[at])) << bounds;
    }
  }
}

TEST(Schema, OneOfAlternativesThatExcludeEachOther) {
  expect(R"({"oneOf":[{"type":"null"}]})", {{"null"}, {"1"}});
  expect(
      R"({"oneOf":[{"type":"null"},{"type":["string","boolean"]},{"type":"array","items":{"type":"null"}}]})",
      {{"null", "\"a\"", "true", "[null]"}, {"1", "[1]"}});
  expect(R"({"oneOf":[{"const":"a","title":"the first"},{"const":"b"},{"enum":[1,2]},{"const":3}]})",
         {{"\"a\"", "\"b\"", "2", "3"}, {"\"c\"", "4"}});
  // As pydantic writes what it tells apart by a word.
  expect(
      R"({"$defs":{"Cat":{"type":"object","title":"Cat","properties":{"kind":{"const":"cat","type":"string"},
                          "lives":{"type":"integer"}},"required":["kind","lives"]},
                   "Dog":{"type":"object","properties":{"kind":{"enum":["dog","wolf"]}},"required":["kind"]}},
          "type":"object","properties":{"pet":{"discriminator":{"propertyName":"kind"},
             "oneOf":[{"$ref":"#/$defs/Cat"},{"$ref":"#/$defs/Dog"},{"type":"null"}]}},"required":["pet"]})",
      {{R"({"pet":{"kind":"cat","lives":9}})", R"({"pet":{"kind":"wolf"}})", R"({"pet":null})"},
       {R"({"pet":{"kind":"cat"}})", R"({"pet":{"kind":"cow"}})"}});
  expect(
      R"({"oneOf":[{"properties":{"a":{"const":1}},"required":["a"]},{"properties":{"a":{"const":2}},"required":["a"]}]})",
      {{R"({"a":1})", R"({"a":2})"}, {R"({"a":3})", "{}"}});
  EXPECT_NE(schema_reading(R"({"oneOf":[{"type":"string"},{"const":"a"}]})").remedy.find("anyOf"),
            std::string::npos);
}

TEST(Schema, OneOfManyAlternativesIsRefusedWhereItTakesTooMuchWork) {
  const auto one_of = [](int alternatives, int values) {
    std::string schema = R"({"oneOf":[)";
    for (int nth = 0; nth < alternatives; ++nth) {
      schema += nth > 0 ? R"(,{"enum":[)" : R"({"enum":[)";
      for (int value = 0; value < values; ++value)
        schema += (value > 0 ? "," : "") + std::to_string(nth * values + value);
      schema += "]}";
    }
    return schema_reading(schema + "]}");
  };
  EXPECT_EQ(one_of(500, 2).refusal, "");
  EXPECT_NE(one_of(1'000, 30).refusal.find("too much work"), std::string::npos);
}

// What is said of one of them is held for it, and asked of no other.
TEST(Schema, SeveralTypesHoldWhatIsSaidOfEach) {
  expect(R"({"type":["string","array","boolean"],"maxLength":1,"items":{"type":"null"},"maxItems":1})",
         {{"\"a\"", "[null]", "true"}, {"\"ab\"", "[1]", "[null,null]", "null"}});
  expect(R"({"type":["integer","string"],"minimum":3,"title":"x"})", {{"3", "\"\""}, {"2"}});
}

TEST(Schema, ValuesThatAreNotOfTheTypeAreNone) {
  expect(R"({"type":"string","enum":["a",1,null]})", {{"\"a\""}, {"1", "null"}});
  expect(R"({"type":["integer","null"],"enum":["a",1,1.5,2.0,null]})", {{"1", "null"}, {"\"a\"", "1.5"}});
  expect(R"({"type":"number","enum":[1,1.5,true]})", {{"1", "1.5"}, {"true"}});
  expect(R"({"type":"object","enum":[{"a":1},[]]})", {{"{\"a\":1}"}, {"[]"}});
  expect(R"({"const":1,"enum":[2,1]})", {{"1"}, {"2"}});
  expect(R"({"anyOf":[{"type":"string","const":"a"},{"type":"null","enum":["b",null]}]})",
         {{"\"a\"", "null"}, {"\"b\""}});
}

TEST(Schema, Strings) {
  expect(R"({"type":"string"})",
         {{"\"\"", "\"\xC3\xA9 \\n \\u00e9 \\ud83d\\ude00\""},
          {"\"\n\"", "\"\\x\"", "\"\\ud83d\"", "\"\\udc00\"", "\"a", "\"\xFF\"", "\"a\"b"}});
  expect(R"({"type":"string","minLength":2,"maxLength":3})",
         {{"\"ab\"", "\"\xC3\xA9\\n\"", "\"abc\""}, {"\"a\"", "\"abcd\"", "\"\""}});
  expect(R"({"type":"string","minLength":2})", {{"\"ab\"", "\"abcdef\""}, {"\"a\""}});
  expect(R"({"type":"string","pattern":"^[a-z]+$"})", {{"\"abc\""}, {"\"aBc\"", "\"\""}});
  expect(R"({"type":"string","pattern":"b"})", {{"\"abc\""}, {"\"ac\""}});
}

TEST(Schema, Lists) {
  expect(R"({"type":"array","items":{"type":"integer"}})",
         {{"[]", "[1]", "[1, 2,3]", "[\n  1,\n  2\n]"}, {"[1,]", "[,1]", "[\"a\"]", "[1 2]", "[1,  2]"}});
  expect(R"({"items":{"type":"integer"},"minItems":1,"maxItems":2})", {{"[1]", "[1,2]"}, {"[]", "[1,2,3]"}});
  expect(R"({"type":"array","minItems":2})", {{"[1,{}]", "[1,2,[]]"}, {"[1]"}});
  expect(R"({"type":"array","maxItems":0})", {{"[]"}, {"[1]"}});
}

TEST(Schema, Objects) {
  const char* schema = R"({"type":"object","properties":{"z":{"type":"integer"},"a":{"type":"string"},"m":{}},
                           "required":["z"],"additionalProperties":false})";
  expect(schema, {{"{\"z\":1}", "{\"z\": 1, \"a\": \"x\"}", "{\"z\":1,\"m\":[{}]}",
                   "{\n  \"z\": 1,\n  \"a\": \"\",\n  \"m\": null\n}"},
                  {"{}", "{\"a\":\"x\"}", "{\"a\":\"x\",\"z\":1}", "{\"z\":1,}", "{\"z\":1,\"z\":1}",
                   "{\"z\":1,\"b\":1}"}});
  expect(R"({"properties":{"a":{"type":"null"},"b":{"type":"null"}}})",
         {{"{}", "{\"a\":null}", "{\"b\":null}", "{\"a\":null,\"b\":null}"},
          {"{\"a\":null\"b\":null}", "{,\"b\":null}"}});
  expect(R"({"type":"object","additionalProperties":{"type":"integer"}})",
         {{"{}", "{\"any\":1,\"other\":2}"}, {"{\"any\":\"x\"}"}});
  expect(R"({"type":"object","additionalProperties":false})", {{"{}"}, {"{\"a\":1}"}});
  expect(R"({"type":"object"})", {{"{}", "{\"a\":{\"b\":[]}}"}, {"[]"}});
}

TEST(Schema, AlternativesAndReferences) {
  expect(
      R"({"anyOf":[{"type":"integer"},{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]},
                       {"type":"object","properties":{"ab":{"const":1}},"required":["ab"]}]})",
      {{"5", "{\"a\":5}", "{\"ab\":1}"}, {"{}", "{\"ab\":5}", "\"x\""}});
  expect(R"({"$defs":{"list":{"anyOf":[{"type":"null"},{"type":"object","properties":{"v":{"type":"integer"},
              "next":{"$ref":"#/$defs/list"}},"required":["v","next"]}]}},"$ref":"#/$defs/list"})",
         {{"null", "{\"v\":1,\"next\":null}", "{\"v\":1,\"next\":{\"v\":2,\"next\":null}}"},
          {"{\"v\":1}", "{\"v\":1,\"next\":2}"}});
  expect(R"({"type":"array","items":{"$ref":"#"}})", {{"[]", "[[],[[]]]"}, {"[1]"}});
  expect(R"({"definitions":{"a/b":{"type":"null"}},"allOf":[{"$ref":"#/definitions/a~1b"}]})",
         {{"null"}, {"1"}});
}

// Those that begin or end alike, are each other's beginnings, or stand there twice.
TEST(Schema, EachOfManyValuesAndNoOther) {
  expect(R"({"enum":["ab","a","abc","ab","b","bc","\u00e9t\u00e9","\u00e9","",12,1,123,-1]})",
         {{"\"ab\"", "\"a\"", "\"abc\"", "\"b\"", "\"bc\"", "\"\xC3\xA9t\xC3\xA9\"", "\"\xC3\xA9\"", "\"\"",
           "12", "1", "123", "-1"},
          {"\"ac\"", "\"c\"", "\"abcd\"", "\"\xC3\"", "\"\xC3\xA9t\"", "2", "-", "1234", "-12", "\"bcd\""}});
  expect(
      R"({"anyOf":[{"const":"a"},{"type":"null"},{"enum":["b",7]},{"type":"array","items":{"const":"a"}}]})",
      {{"\"a\"", "null", "\"b\"", "7", "[\"a\", \"a\"]"}, {"\"c\"", "77", "[\"b\"]"}});
  std::string schema = R"({"enum":[)";
  const auto word = [](int value) { return "\"" + std::to_string(value * 7919 % 100'003) + "-item\""; };
  for (int value = 0; value < 10'000; ++value) schema += (value > 0 ? "," : "") + word(value);
  Reading reading = schema_reading(schema + "]}");
  ASSERT_EQ(reading.refusal, "");
  for (int value = 0; value < 20'000; ++value) EXPECT_EQ(reading.takes(word(value)), value < 10'000) << value;
}

TEST(Schema, AnyObjectIsAsDeepAsItsBound) {
  Reading any([](Grammar& grammar, NodeId from) { return add_any_object(grammar, from); });
  const auto nested = [](int depth) {
    std::string text = "{\"a\":";
    for (int level = 0; level < depth; ++level) text += "[";
    text += "1";
    for (int level = 0; level < depth; ++level) text += "]";
    return text + "}";
  };
  EXPECT_TRUE(any.takes("{}"));
  EXPECT_TRUE(any.takes("{\"a\": [1, {\"b\": null}], \"c\": \"d\"}"));
  EXPECT_FALSE(any.takes("[]"));
  EXPECT_TRUE(any.takes(nested(machine_depth_max - 1)));
  EXPECT_FALSE(any.takes(nested(machine_depth_max)));
}

TEST(Schema, WhatIsNotKnownIsRefusedByName) {
  for (
      const auto& [schema, word] : std::vector<std::pair<std::string, std::string>>{
          {R"({"type":"number","minimum":true})", "minimum is a number"},
          {R"({"type":"number","multipleOf":0.1})", "multipleOf"},
          {R"({"type":"number","minimum":0.5,"exclusiveMaximum":0.5})", "bounds"},
          {R"({"type":"number","minimum":2,"maximum":-2})", "bounds"},
          {R"({"type":"number","maximum":-1e18})", "maximum leaves no number"},
          {R"({"type":"number","exclusiveMinimum":3.141592653589793})", "exclusiveMinimum has more digits"},
          {R"({"type":"number","minimum":1e-300})", "minimum has more digits"},
          {R"({"type":"number","maximum":9007199254740993})", "maximum has more digits"},
          {R"({"type":["number","boolean"],"multipleOf":7,"not":{},"blah":1})", "is not known here"},
          {R"({"type":["integer","null"],"multipleOf":7})", "multipleOf"},
          {R"({"type":["boolean","null"],"minLength":7})", "minLength"},
          {R"({"type":["integer","thing"]})", "thing"},
          {R"({"type":"integer","exclusiveMinimum":true})", "exclusiveMinimum"},
          {R"({"type":"integer","minimum":3,"maximum":2})", "bounds"},
          {R"({"type":"integer","minimum":1e19})", "bounds"},
          {R"({"type":"string","enum":[1]})", "no value"},
          {R"({"type":"thing","enum":[1]})", "thing"},
          {R"({"const":1,"enum":[2]})", "no value"},
          {R"({"const":1,"enum":[]})", "enum"},
          {R"({"const":1,"type":"string"})", "no value"},
          {R"({"oneOf":[{"type":"integer"},{"type":"number"}]})", "alternatives 0 and 1"},
          {R"({"oneOf":[{"type":"null"},{"type":"string"},{"type":["null","array"]}]})",
           "alternatives 0 and 2"},
          {R"({"oneOf":[{"const":1},{"enum":[2,1.0]}]})", "oneOf"},
          {R"({"oneOf":[{"type":"string","maxLength":1},{"type":"string","minLength":2}]})", "oneOf"},
          {R"({"oneOf":[{"properties":{"a":{"const":1}},"required":["a"]},{"properties":{"a":{"const":2}}}]})",
           "oneOf"},
          {R"({"oneOf":[{"const":{"a":1}},{"const":{"a":2}}]})", "oneOf"},
          {R"({"oneOf":[{},{"type":"null"}]})", "oneOf"},
          {R"({"oneOf":[]})", "oneOf"},
          {R"({"oneOf":[{"type":"null"}],"anyOf":[{"type":"null"}]})", "oneOf"},
          {R"({"not":{}})", "not"},
          {R"({"type":"array","prefixItems":[]})", "prefixItems"},
          {R"({"type":"thing"})", "thing"},
          {R"({"properties":{"a":{"patternProperties":{}}}})", "#/properties/a"},
          {R"({"$ref":"http://elsewhere/x"})", "$ref"},
          {R"({"$ref":"#/$defs/none"})", "no such part"},
          {R"({"type":"array","maxItems":1000000})", "maxItems"},
          {R"({"type":"string","maxLength":-1})", "maxLength"},
          {R"({"enum":[]})", "enum"},
          {R"({"required":["a"]})", "required"},
          {R"({"type":"string","pattern":"("})", "pattern"},
          {"false", "false"},
          {"[]", "object"},
          {"{", "schema"},
      }) {
    const auto refusal = schema_reading(schema).refusal;
    EXPECT_NE(refusal.find(word), std::string::npos) << schema << ": " << refusal;
  }
}

TEST(Schema, WhatExplodesIsRefused) {
  std::string deep;
  for (int level = 0; level < 60; ++level) deep += R"({"type":"array","items":)";
  deep += "{}" + std::string(60, '}');
  EXPECT_NE(schema_reading(deep).refusal, "");
  std::string wide = R"({"enum":[)";
  for (int value = 0; value < 20'001; ++value) wide += (value > 0 ? "," : "") + std::to_string(value);
  EXPECT_NE(schema_reading(wide + "]}").refusal, "");
  std::string many = R"({"anyOf":[)";
  for (int value = 0; value < 60; ++value)
    many += std::string(value > 0 ? "," : "") + R"({"type":"string","maxLength":4000})";
  EXPECT_NE(schema_reading(many + "]}").refusal, "");
  EXPECT_NE(schema_reading(std::string(schema_bytes_max + 1, ' ')).refusal, "");
  // A circle that reads nothing has no text.
  Reading circle = schema_reading(R"({"$defs":{"a":{"$ref":"#/$defs/a"}},"$ref":"#/$defs/a"})");
  EXPECT_EQ(circle.machine->start(), Machine::dead);
}

// However many names lead to one another: a thread with little stack reads them, too.
TEST(Schema, AChainOfNamesIsNoDeepStack) {
  std::string chain = R"({"$ref":"#/$defs/a0","$defs":{)";
  for (int name = 0; name < 7'000; ++name)
    chain += "\"a" + std::to_string(name) + R"(":{"$ref":"#/$defs/a)" + std::to_string(name + 1) + "\"},";
  chain += R"("a7000":{"type":"null"}}})";
  pthread_attr_t little;
  ASSERT_EQ(pthread_attr_init(&little), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&little, std::size_t{1} << 20), 0);
  const auto read = [](void* text) -> void* {
    const Reading reading = schema_reading(*static_cast<std::string*>(text));
    EXPECT_EQ(reading.refusal, "");
    EXPECT_EQ(reading.machine->start(), Machine::dead) << "what is named is too deep inside";
    return nullptr;
  };
  pthread_t thread{};
  ASSERT_EQ(pthread_create(&thread, &little, read, &chain), 0);
  ASSERT_EQ(pthread_join(thread, nullptr), 0);
  pthread_attr_destroy(&little);
}

}  // namespace
}  // namespace tutti::serve
