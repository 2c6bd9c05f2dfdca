#include "serve/chat/chat.hpp"

#include <gtest/gtest.h>

#include "base/json/parse.hpp"
#include "serve/chat/published_prompts_test.hpp"
#include "serve/chat/render.hpp"
#include "serve/chat/snippets_test.hpp"
#include "serve/chat/syntax.hpp"

namespace tutti::serve::chat {
namespace {

constexpr Moment fifth_of_november{.year = 2026, .month = 11, .day = 5, .hour = 14, .minute = 7, .second = 9};

json::Value read(std::string_view text) {
  auto value = json::parse(text);
  EXPECT_TRUE(value) << text;
  return value ? *value : json::Value();
}

Conversation conversation_of(std::string_view text) {
  const json::Value whole = read(text);
  Conversation conversation;
  conversation.now = fifth_of_november;
  conversation.arguments = json::Object();
  for (const auto& [key, value] : *whole.object()) {
    if (key == "messages") {
      conversation.messages = value;
    } else if (key == "tools") {
      conversation.tools = value;
    } else if (key == "add_generation_prompt") {
      conversation.generation_prompt = *value.boolean();
    } else {
      conversation.arguments[key] = value;
    }
  }
  return conversation;
}

ChatTemplate made(std::string_view text) {
  auto parsed = ChatTemplate::parse(text);
  EXPECT_TRUE(parsed) << parsed.error().text();
  return parsed ? *parsed : ChatTemplate::fallback();
}

// The prompt, or "refused: why".
std::string shown(const Result<std::string>& prompt) {
  return prompt ? *prompt : "refused: " + prompt.error().text();
}

TEST(Chat, PublishedTemplatesWriteWhatJinjaWrites) {
  for (const auto& each : published::prompts) {
    Conversation conversation = conversation_of(each.conversation);
    conversation.begin_text = each.begin;
    conversation.end_text = each.end;
    const auto prompt = made(each.text).prompt(conversation);
    if (each.expected == "refused") {
      ASSERT_FALSE(prompt) << each.name;
      EXPECT_NE(prompt.error().text().find("the template refuses the conversation: "), std::string::npos)
          << prompt.error().text();
    } else {
      EXPECT_EQ(shown(prompt), each.expected) << each.name;
    }
  }
}

Result<std::string> rendered(std::string_view text, std::string_view variables = "{}") {
  auto block = parse_template(text);
  if (!block) return block.error();
  Variables known;
  const json::Value given = read(variables);
  for (const auto& [key, value] : *given.object()) known.insert_or_assign(key, from_json(value));
  return render(*block, std::move(known), fifth_of_november);
}

TEST(Template, SmallOnesWriteWhatJinjaWrites) {
  for (const auto& each : published::snippets) {
    const auto prompt = rendered(each.text, published::snippet_variables);
    if (each.expected == "refused") {
      EXPECT_FALSE(prompt) << each.text << "\n" << shown(prompt);
    } else {
      EXPECT_EQ(shown(prompt), each.expected) << each.text;
    }
  }
}

// ---- what clients send

Conversation one_message(std::string_view message) {
  Conversation conversation;
  conversation.messages = json::Array{read(message)};
  return conversation;
}

TEST(Chat, AModelWithoutATemplateSpeaksChatMl) {
  const ChatTemplate fallback = ChatTemplate::fallback();
  EXPECT_TRUE(fallback.is_fallback());
  EXPECT_NE(fallback.describe().find("ChatML"), std::string::npos);
  EXPECT_FALSE(made("x").is_fallback());
  EXPECT_EQ(shown(fallback.prompt(conversation_of(published::with_system))),
            "<|im_start|>system\nYou are brief.<|im_end|>\n<|im_start|>user\nWhat is 2 + 2?<|im_end|>\n"
            "<|im_start|>assistant\n");
  Conversation closed = conversation_of(published::with_system);
  closed.generation_prompt = false;
  EXPECT_TRUE(shown(fallback.prompt(closed)).ends_with("2 + 2?<|im_end|>\n"));
}

TEST(Chat, AMessageWithoutContentIsEmptyInChatMl) {
  EXPECT_EQ(shown(ChatTemplate::fallback().prompt(one_message(R"({"role":"assistant","content":null})"))),
            "<|im_start|>assistant\n<|im_end|>\n<|im_start|>assistant\n");
}

TEST(Chat, PartsOfTextBecomeOneText) {
  const auto prompt = ChatTemplate::fallback().prompt(
      one_message(R"({"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]})"));
  EXPECT_EQ(shown(prompt), "<|im_start|>user\na\nb<|im_end|>\n<|im_start|>assistant\n");
}

TEST(Chat, ArgumentsOfACallAreReadFromTheirText) {
  const ChatTemplate calls = made("{{ messages[0].tool_calls[0].function.arguments | tojson }}");
  const auto with_arguments = [&](const std::string& arguments) {
    Conversation conversation = one_message(
        R"({"role":"assistant","content":null,"tool_calls":[{"type":"function","function":{"name":"f"}}]})");
    conversation.messages[0]["tool_calls"][0]["function"]["arguments"] = arguments;
    return shown(calls.prompt(conversation));
  };
  EXPECT_EQ(with_arguments(R"({"z":1,"a":[true]})"), R"({"z": 1, "a": [true]})") << "in the client's order";
  EXPECT_EQ(with_arguments(""), "{}");
  EXPECT_NE(with_arguments("[1]").find("no JSON object"), std::string::npos);
  EXPECT_NE(with_arguments("{").find("messages[0]"), std::string::npos);
}

TEST(Chat, WhetherToolsCanBeWrittenIsKnownFromTheTemplate) {
  EXPECT_FALSE(ChatTemplate::fallback().names_tools());
  EXPECT_FALSE(ChatTemplate::fallback().names_tool_calls());
  EXPECT_FALSE(made("You have no tools.{# tools, tool_calls #}{{ messages[0].content }}").names_tools());
  for (const char* text :
       {"{{ tools | tojson }}", "{% if x is defined and tools %}a{% endif %}",
        "{% for tool in tools %}a{% endfor %}", "{% macro all(given=tools) %}{{ given }}{% endmacro %}",
        "{% macro all() %}{{ tools[0] }}{% endmacro %}",
        "{% macro f(given) %}a{% endmacro %}{% if x %}a{% else %}{{ f(given=tools) }}{% endif %}",
        "{% set own = tools %}"}) {
    EXPECT_TRUE(made(text).names_tools()) << text;
    EXPECT_FALSE(made(text).names_tool_calls()) << text;
  }
  for (const char* text : {"{{ messages[0].tool_calls[0].id }}", "{{ messages[0]['tool_calls'] | length }}",
                           "{% for m in messages %}{% if 'tool_calls' in m %}a{% endif %}{% endfor %}"})
    EXPECT_TRUE(made(text).names_tool_calls()) << text;
}

TEST(Chat, AnAnswerCanGoOnWithTheLastMessage) {
  Conversation conversation = conversation_of(
      R"({"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Well, "}]})");
  conversation.continues_last = true;
  EXPECT_EQ(shown(ChatTemplate::fallback().prompt(conversation)),
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nWell,");
  EXPECT_NE(shown(made("nothing").prompt(conversation)).find("no answer can go on"), std::string::npos);
  conversation.messages.list()->pop_back();
  EXPECT_NE(shown(ChatTemplate::fallback().prompt(conversation)).find("no text of the assistant"),
            std::string::npos);
}

TEST(Chat, WhatPeopleSentIsGuardedAndTheTemplateIsNot) {
  Conversation conversation = conversation_of(
      R"({"messages":[{"role":"user","content":"x<|im_end|>y"}],"tools":[{"<|im_end|>":"<|im_end|>"}],"also":"<|im_end|>"})");
  conversation.guard = [](std::string_view text) {
    return text.find("<|im_end|>") == std::string_view::npos ? std::string(text) : "[guarded]";
  };
  EXPECT_EQ(shown(ChatTemplate::fallback().prompt(conversation)),
            "<|im_start|>user\n[guarded]<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(shown(made("{{ tools | tojson }}{{ also }}").prompt(conversation)),
            R"([{"[guarded]": "[guarded]"}][guarded])");
}

TEST(Chat, NamesThatAreNotGivenAreNotDefined) {
  EXPECT_EQ(shown(made("{{ bos_token is defined }}{{ eos_token is defined }}{{ tools is none }}")
                      .prompt(one_message(R"({"role":"user","content":"x"})"))),
            "FalseFalseTrue");
}

TEST(Chat, RefusesWhatIsNoConversation) {
  const auto refused = [](const Conversation& conversation, const std::string& part) {
    const auto prompt = ChatTemplate::fallback().prompt(conversation);
    ASSERT_FALSE(prompt) << part;
    EXPECT_EQ(prompt.error().code(), ErrorCode::invalid);
    EXPECT_NE(prompt.error().text().find(part), std::string::npos) << prompt.error().text();
  };
  refused({}, "'messages' is no list");
  refused({.messages = json::Array()}, "at least one message");
  refused({.messages = json::Array{1}}, "messages[0] : it is no object");
  refused(one_message(R"({"content":"x"})"), "no 'role'");
  refused(one_message(R"({"role":7,"content":"x"})"), "no 'role'");
  refused(one_message(R"({"role":"user","content":7})"), "neither a text nor a list");
  refused(one_message(R"({"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]})"),
          "reads text alone");
  refused(one_message(R"({"role":"user","content":"x","tool_calls":7})"), "'tool_calls' is no list");
  Conversation calls = one_message(
      R"({"role":"assistant","content":"x","tool_calls":[{"function":{"name":"f"}},{"function":{"name":"f"}}]})");
  std::string many = R"({"a":[0)";
  for (std::size_t each = 0; each < call_values_max / 2; ++each) many += ",0";
  for (const std::size_t call : {0U, 1U})
    calls.messages[0]["tool_calls"][call]["function"]["arguments"] = many + "]}";
  refused(calls, "those of all have more than 65536 values");
  Conversation tools = one_message(R"({"role":"user","content":"x"})");
  tools.tools = "x";
  refused(tools, "'tools' is no list");
  refused({.messages = json::Array(messages_max + 1, read(R"({"role":"user","content":""})"))},
          "more than 10000");
}

// ---- templates from anywhere

TEST(Template, SaysAtWhichLineWhatIsWrong) {
  const auto told = [](const std::string& text, const std::string& part) {
    const auto prompt = rendered(text);
    ASSERT_FALSE(prompt) << text;
    EXPECT_NE(prompt.error().text().find(part), std::string::npos) << prompt.error().text();
  };
  told("a\nb\n{% include 'x' %}", "line 3 : the tag 'include' is not known here");
  told("{% if x %}", "'endif' is missing");
  told("{% for x in y %}", "'endfor' is missing");
  told("{% endif %}", "the tag 'endif' is not known here");
  told("{{ x", "line 1 : a tag has no end");
  told("\n{# x", "line 2 : a comment has no end");
  told("{% raw %}", "'endraw'");
  told("{{ 'x }}", "a string has no end");
  told("{{ x y }}", "'}}' is expected, and there is 'y'");
  told("{{ ) }}", "a value is expected");
  told("{{ x | }}", "a filter is expected");
  told("{{ if }}", "a value is expected");
  told("{{ 99999999999999999999 }}", "out of range");
  told("{{ $ }}", "not known inside of a tag");
  told("\n\n{{ x.y.z }}", "line 3 : 'x' is undefined");
  told("{{ 1 + missing }}", "'missing' is undefined");
  told("{{ 'a' % 1 }}", "'%' of a text and a number");
  told("{{ x | bogus }}", "the filter 'bogus' is not known here");
  told("{{ x is bogus }}", "the test 'bogus' is not known here");
  told("{{ 'a'.encode() }}", "a text has no method 'encode'");
  told("{{ lipsum() }}", "no function 'lipsum'");
  told("{% break %}", "outside of a loop");
  told("{{ f(*x) }}", "'*' before an argument");
  told("{% for x in y recursive %}{% endfor %}", "'recursive'");
  told("{{ 9223372036854775807 + 1 }}", "out of range");
  told("{{ -9223372036854775807 * 3 }}", "out of range");
}

TEST(Template, BombsAreRefused) {
  const auto refused = [](const std::string& text, const std::string& part) {
    const auto prompt = rendered(text);
    ASSERT_FALSE(prompt) << text.substr(0, 100);
    EXPECT_NE(prompt.error().text().find(part), std::string::npos) << prompt.error().text();
  };
  const std::string big = "{% set ns = namespace(x='aaaaaaaaaaaaaaaa') %}";
  refused("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
          "more than 5000000 steps");
  refused(big + "{% for a in range(64) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}", "larger than");
  refused(
      big +
          "{% for a in range(20) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{% for a in range(99) %}{{ ns.x }}"
          "{% endfor %}",
      "it writes more than");
  refused(big + "{% for a in range(64) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}", "larger than");
  refused("{% set ns = namespace(x=1) %}{% for a in range(9999) %}{% set ns.x = [ns.x] %}{% endfor %}",
          "nested more than");
  refused("{% set ns = namespace() %}{% set ns.x = [ns] %}", "cannot be kept");
  refused("{% set ns = namespace() %}{% set ns.x = ns %}", "a namespace cannot hold");
  refused("{% for a in [1] %}{% set ns = namespace(l=loop) %}{% endfor %}", "a namespace cannot hold");
  refused("{{ 'a' * 99999999999 }}", "larger than");
  EXPECT_EQ(rendered("{{ '' * 999999999999999 }}").value(), "") << "and it is there at once";
  refused("{{ [0] * 99999999999 }}", "larger than");
  refused("{{ ('a' * 9999999).replace('a', 'b' * 9999999) }}", "larger than");
  refused("{{ ('a' * 9999999).replace('', 'b' * 9999999) }}", "larger than");
  refused("{{ range(99999) | join('b' * 9999999) }}", "larger than");
  // Lists are weighed as the memory that they take, and before it is taken.
  std::string doubled;
  for (int at = 0; at < 60; ++at) doubled += "{% set a = a + a %}";
  refused("{% set a = [1] %}" + doubled + "{{ a | length }}", "larger than");
  refused("{% set a = [{}] %}" + doubled + "{{ a | length }}", "larger than");
  refused("{% set a = 'ab' %}" + doubled + "{{ a | length }}", "larger than");
  refused("{% set a = [1] * 500000 %}{% set a = a + a %}", "larger than");
  refused("{{ [1] * 1000000 }}", "larger than");
  refused("{{ (',' * 2000000).split(',') }}", "larger than");
  refused("{{ (',' * 2000000).rsplit(',') }}", "larger than");
  refused("{{ ('a ' * 2000000).split() }}", "larger than");
  refused("{{ ('\\n' * 2000000).splitlines() }}", "larger than");
  refused("{{ ('a' * 2000000) | list }}", "larger than");
  refused("{{ ('a' * 2000000)[::2] }}", "larger than");
  refused(
      "{% set ns = namespace(x=range(9)) %}{% for a in range(90) %}{% set ns.x = [ns.x] %}{% endfor %}"
      "{{ ([ns.x] * 9999) | tojson(indent=16) }}",
      "larger than");
  refused("{{ range(999999999999) }}", "'range' has more than");
  refused("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "deep");
  refused("{{ " + std::string(10'000, '(') + "1" + std::string(10'000, ')') + " }}", "nested more than");
  refused("{{ " + std::string(10'000, '[') + "1" + std::string(10'000, ']') + " }}", "nested more than");
  refused("{{ x" + std::string(10'000, '.') + "y }}", "expected");
  std::string chain = "{{ 1";
  for (int at = 0; at < 10'000; ++at) chain += "+1";
  refused(chain + " }}", "nested more than");
  std::string blocks;
  for (int at = 0; at < 10'000; ++at) blocks += "{% if x %}";
  refused(blocks, "nested more than");
  refused("{{ " + std::string(100'000, '-') + "1 }}", "nested more than");
  std::string nots = "{{ ";
  for (int at = 0; at < 10'000; ++at) nots += "not ";
  refused(nots + "1 }}", "nested more than");
  refused(std::string(template_bytes_max + 1, 'x'), "the template has more than");
  // What is read at each turn is paid for, wherever it comes from.
  const std::string often =
      "{% set a = 'a' * 16000000 %}{% set dots = '.' * 16000000 %}{% for i in range(99999) %}";
  const auto refused_often = [&](const std::string& each) {
    refused(often + each + "{% endfor %}", "more than 5000000 steps");
  };
  refused_often("{{ 'b'.find(sub=a) }}");
  refused_often("{{ 'b' | replace(old=a, new='') }}");
  refused_often("{{ a is upper }}");
  refused_often("{{ i[a] }}");
  refused_often("{{ [{}] | map(attribute=a) }}");
  refused(often + "{{ [{}] | map(attribute=dots) }}{% endfor %}", "is undefined");
}

TEST(Template, LargeMapsArePaidForByTheirKeys) {
  std::string members;
  for (int at = 0; at < 20'000; ++at) members += (at == 0 ? "\"" : ",\"") + std::to_string(at) + "\":0";
  for (const std::string each : {"{% for key in x %}{{ x[key] }}{% endfor %}", "{{ dict(x) }}"}) {
    const auto prompt = rendered(each, R"({"x":{)" + members + "}}");
    ASSERT_FALSE(prompt) << each;
    EXPECT_NE(prompt.error().text().find("more than 5000000 steps"), std::string::npos) << each;
  }
}

// A search that begins anew at each letter takes minutes for one of them.
TEST(Template, TextsAreSearchedInLinearTime) {
  const std::string set =
      "{% set a = 'a' * 8000000 %}{% set b = 'a' * 4000000 ~ 'b' %}{% set c = 'b' ~ 'a' * 4000000 %}";
  const auto is = [&](const std::string& text, const std::string& expected) {
    EXPECT_EQ(shown(rendered(set + "{{ " + text + " }}")), expected) << text;
  };
  is("b in a", "False");
  is("c in a", "False");
  is("a.find(b) ~ a.rfind(b) ~ a.rfind(c) ~ a.find(c)", "-1-1-1-1");
  is("a.count(b) ~ ' ' ~ a.count('a' * 4000000) ~ ' ' ~ a.count('a' * 3000000)", "0 2 2");
  is("a.split(b) | length ~ ' ' ~ a.rsplit(c) | length", "1 1");
  is("(a ~ 'b').split(b)[1] ~ (a ~ 'b').rfind(b) ~ (c ~ a).find(c)", "40000000");
  is("(a.replace(b, '') == a) ~ a.replace('a' * 3000000, '') | length", "True2000000");
}

TEST(Template, SearchesFindWhatPythonFinds) {
  const auto is = [&](const std::string& text, const std::string& expected) {
    EXPECT_EQ(shown(rendered("{{ " + text + " }}")), expected) << text;
  };
  is("'äbäb'.rfind('äb') ~ 'äbäb'.find('äb') ~ 'ab'.rfind('') ~ ''.find('') ~ ''.rfind('a')", "2020-1");
  is("'aaa'.rsplit('aa') | tojson", R"(["a", ""])");
  is("'aaa'.split('aa') | tojson", R"(["", "a"])");
  is("'a,b,c'.rsplit(',', 1) | tojson", R"(["a,b", "c"])");
  is("',a,'.rsplit(',') | tojson", R"(["", "a", ""])");
  is("'' in 'a' and '' in '' and 'a' not in ''", "True");
}

TEST(Template, WhatIsAbandonedEnds) {
  const auto block =
      parse_template("{% for a in range(99999) %}{% for b in range(10) %}{% endfor %}{% endfor %}");
  ASSERT_TRUE(block);
  std::stop_source left;
  left.request_stop();
  const auto prompt = render(*block, {}, {}, left.get_token());
  ASSERT_FALSE(prompt);
  EXPECT_NE(prompt.error().text().find("nobody waits"), std::string::npos) << prompt.error().text();
}

// Templates ask for its length at each message.
TEST(Template, LongConversationsAreCheap) {
  std::string messages;
  for (int at = 0; at < 5'000; ++at)
    messages +=
        std::string(at == 0 ? "" : ",") + R"({"role":"user","content":")" + std::string(400, 'a') + "\"}";
  const auto prompt = rendered(
      "{% for m in messages %}{% if loop.index == messages | length %}{{ (messages | last).role }}"
      "{{ m.content[398:] }}{% endif %}{% endfor %}",
      R"({"messages":[)" + messages + "]}");
  EXPECT_EQ(shown(prompt), "useraa");
}

TEST(Template, LongTextsAreCheap) {
  std::string text = "{{ x }}{% if 'q' in x %}{% endif %}{{ x | trim | length }}";
  auto block = parse_template(text);
  ASSERT_TRUE(block);
  const std::string large(std::size_t{4} << 20U, 'a');
  const auto prompt = render(*block, {{"x", large}}, {});
  EXPECT_EQ(shown(prompt).size(), large.size() + 7);
  const auto cut =
      rendered("{% set x = 'äb' * 4000000 %}{{ x[1:4] }}{{ x[-1] }}{{ x[2:1] }}{{ x[7999999:] }}");
  EXPECT_EQ(shown(cut), "bäbbb");
  const auto stripped = rendered("{{ ('a' * 4000000 ~ 'c').strip('b' * 4000000 ~ 'a') }}");
  EXPECT_EQ(shown(stripped), "c");
}

}  // namespace
}  // namespace tutti::serve::chat
