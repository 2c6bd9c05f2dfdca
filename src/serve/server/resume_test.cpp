// Streams that are cut and go on at another server, over HTTP.
#include <optional>
#include <sstream>

#include "serve/lora/made_adapter_test.hpp"
#include "serve/server/serving_test.hpp"

namespace tutti::serve {
namespace {

struct Event {
  std::optional<std::string> listed;  // what the line before it lists
  std::string data;
  friend bool operator==(const Event&, const Event&) = default;
};

void PrintTo(const Event& event, std::ostream* out) {
  *out << event.listed.value_or("-") << " | " << event.data;
}

// Two servers with the same model: `server`, and one that is asked first.
class Resuming : public Serving {
 protected:
  void serve_two(const std::vector<NamedAdapter>& adapters = {}) {
    listen(settings());
    load_model(0, folder->path(), adapters);
    EXPECT_EQ(get("/health").status, 200);  // its thread runs it by then
    first = std::move(server);
    first_thread = std::move(thread);
    listen(settings());
    load_model(0, folder->path(), adapters);
  }
  void TearDown() override {
    end_first();
    Serving::TearDown();
  }
  void end_first() {
    if (!first_thread.joinable()) return;
    first->stop();
    first_thread.join();
    first.reset();
  }

  static std::string request(const std::string& path, const std::string& body, bool lists = true) {
    return "POST " + path + " HTTP/1.0\r\nContent-Length: " + std::to_string(body.size()) +
           (lists ? "\r\ntutti-resumable: 1" : "") + "\r\n\r\n" + body;
  }
  // Those that are whole.
  static std::vector<Event> events_of(const std::string& answer) {
    std::vector<Event> events;
    Event event;
    std::istringstream lines(answer.substr(std::min(answer.find("\r\n\r\n") + 4, answer.size())));
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with(": tutti")) {
        event.listed = line.substr(7);
      } else if (line.starts_with("data: ")) {
        event.data = line.substr(6);
      } else if (line.empty()) {
        events.push_back(std::exchange(event, {}));
      } else {
        ADD_FAILURE() << line;
      }
    }
    return events;
  }
  static std::vector<Event> stream(const Server& from, const std::string& path, const std::string& fields,
                                   bool lists = true) {
    const RawClient raw(from.port());
    raw.send(request(path, "{\"stream\":true," + fields + "}", lists));
    const std::string answer = raw.read_until("");
    EXPECT_TRUE(answer.starts_with("HTTP/1.0 200")) << answer;
    EXPECT_TRUE(answer.ends_with("data: [DONE]\n\n")) << answer;
    return events_of(answer);
  }

  // Of a completion.
  static std::string text_of(std::span<const Event> events) {
    std::string text;
    for (const Event& event : events) {
      if (event.data == "[DONE]") continue;
      text += *(*parsed(event.data).find("choices")->list())[0].find("text")->text();
    }
    return text;
  }
  // The field for an answer of which so much was told.
  static std::string resumption(std::span<const Event> told) {
    const json::Value chunk = parsed(told.front().data);
    std::string tokens;
    for (const Event& event : told) {
      std::istringstream listed(event.listed.value_or(""));
      for (std::string token; listed >> token;) tokens += (tokens.empty() ? "" : ",") + token;
    }
    return R"("tutti_resume":{"id":")" + *chunk.find("id")->text() + R"(","created":)" +
           std::to_string(*chunk.find("created")->whole()) + R"(,"tokens":[)" + tokens + "]}";
  }

  std::unique_ptr<Server> first;
  std::thread first_thread;
};

// Event by event the same, wherever it is cut: names, logprobs, offsets, reasons.
TEST_F(Resuming, AStreamThatWasCutAnywhereGoesOnElsewhere) {
  lora::MadeAdapter made(open_source(folder->path())->shape, {.seed = 1});
  serve_two({{"polite", made.path()}});
  const std::string text = "/v1/completions";
  const std::string talk = "/v1/chat/completions";
  const std::string asks = R"("messages":[{"role":"user","content":"hello"}],"ignore_eos":true,)";
  const std::pair<std::string, std::string> asked[] = {
      {text, R"("prompt":"Once","max_tokens":12,"temperature":0,"ignore_eos":true,"logprobs":3)"},
      {text, R"("prompt":[79,110],"max_tokens":60,"seed":5,"presence_penalty":1,"repetition_penalty":1.2)"},
      {text,
       R"("prompt":["x"],"max_tokens":40,"seed":3,"regex":"(ab?c|[a-f]{3})-[0-9]{4}","model":"polite")"},
      {text, R"("prompt":"a","max_tokens":60,"seed":1,"logit_bias":{"122":100,"121":100},"stop":"zyzzz")"},
      {text, R"("prompt":"a","max_tokens":9,"seed":1,"logit_bias":{"122":100},"stop":"zzzzzzzzzz")"},
      {talk, asks + R"("max_tokens":40,"seed":8,"logit_bias":{"195":100,"169":100})"},
      {talk, asks + R"("max_tokens":12,"temperature":0,"logprobs":true,"top_logprobs":2)"},
      {talk, asks + R"("max_tokens":90,"seed":2,"response_format":{"type":"json_object"})"}};
  for (const auto& [path, fields] : asked) {
    const auto whole = stream(*first, path, fields);
    ASSERT_GT(whole.size(), 2U) << fields;
    const std::size_t begin = path == talk ? 1 : 0;  // behind who speaks
    EXPECT_EQ(whole.front().listed.has_value(), begin == 0);
    EXPECT_FALSE(whole.back().listed);
    bool is_listed = false;
    for (std::size_t cut = begin + 1; cut < whole.size(); ++cut) {
      is_listed = is_listed || !whole[cut - 1].listed.value_or("").empty();
      if (!is_listed) continue;
      const auto told = std::span(whole).first(cut);
      // Whoever has heard the reason hears it again, and that is all.
      const std::size_t from = std::min(cut, whole.size() - 2);
      std::vector<Event> rest(whole.begin() + static_cast<std::ptrdiff_t>(from), whole.end());
      auto resumed = stream(*server, path, fields + "," + resumption(told));
      if (cut > from) rest.front().listed = "";
      // A last token without a text is in the list of the reason, and where that was heard in none.
      EXPECT_EQ(resumed, rest) << fields << " cut behind " << cut;
      if (testing::Test::HasFailure()) return;
    }
    EXPECT_TRUE(is_listed);
    if (begin == 0) continue;
    const std::string from_the_beginning = resumption(std::span(whole).first(1));
    EXPECT_EQ(stream(*server, path, fields + "," + from_the_beginning), whole) << "also who speaks";
  }
}

TEST_F(Resuming, AServerThatEndsIsFollowedByAnother) {
  serve_two();
  const std::string fields = R"("prompt":"Once","max_tokens":3000,"seed":7,"ignore_eos":true)";
  const RawClient raw(first->port());
  raw.send(request("/v1/completions", "{\"stream\":true," + fields + "}"));
  std::string answer = raw.read_until("data: ");
  end_first();
  answer += raw.read_until("");
  auto events = events_of(answer.substr(0, answer.rfind("\n\n") + 2));
  ASSERT_GT(events.size(), 0U);
  std::erase_if(events, [](const Event& event) { return !event.listed; });
  ASSERT_LT(events.size(), 3000U) << "it was cut";
  const auto rest = stream(*server, "/v1/completions", fields + "," + resumption(events));
  events.insert(events.end(), rest.begin(), rest.end());
  EXPECT_EQ(text_of(events), text_of(stream(*server, "/v1/completions", fields)));
}

TEST_F(Resuming, UsageCountsAllOfTheAnswerAndTheEngineWhatItHasMade) {
  serve();
  const std::string fields =
      R"("prompt":"Once","max_tokens":12,"temperature":0,"ignore_eos":true,"logprobs":0,)"
      R"("stream_options":{"include_usage":true})";
  const auto whole = stream(*server, "/v1/completions", fields);
  const auto made = server->counts().batch.generated_tokens;
  EXPECT_EQ(made, 12);
  for (const std::size_t told : {5U, 12U, 13U}) {
    const auto rest =
        stream(*server, "/v1/completions", fields + "," + resumption(std::span(whole).first(told)));
    const json::Value usage = *parsed(rest[rest.size() - 2].data).find("usage");
    EXPECT_EQ(*usage.find("prompt_tokens"), 4);
    EXPECT_EQ(*usage.find("completion_tokens"), 12);
    EXPECT_EQ(rest.size(), std::max<std::size_t>(whole.size() - told, 3));
  }
  EXPECT_EQ(server->counts().batch.generated_tokens, made + 7);
}

TEST_F(Resuming, OnlyWhoAsksForThemIsToldTokens) {
  serve();
  const std::string fields = R"("max_tokens":4,"temperature":0,"ignore_eos":true)";
  const auto lists = [&](const std::string& other, bool header) {
    const auto events = stream(*server, "/v1/completions", fields + "," + other, header);
    return std::ranges::any_of(events, [](const Event& event) { return event.listed.has_value(); });
  };
  EXPECT_TRUE(lists(R"("prompt":"a")", true));
  EXPECT_FALSE(lists(R"("prompt":"a")", false));
  EXPECT_FALSE(lists(R"("prompt":"a","n":2)", true));
  EXPECT_FALSE(lists(R"("prompt":["a","b"])", true));
  EXPECT_FALSE(lists(R"("prompt":"a","echo":true)", true));
  const RawClient raw(server->port());
  raw.send(request("/v1/completions", R"({"prompt":"a",)" + fields + "}"));
  const std::string answer = raw.read_until("");
  EXPECT_TRUE(answer.starts_with("HTTP/1.0 200")) << answer;
  EXPECT_EQ(answer.find(": tutti"), std::string::npos);
}

TEST_F(Resuming, WhatCannotBeResumedIsRefusedByName) {
  serve();
  const auto refused = [&](const std::string& tokens) {
    const auto answer =
        post("/v1/completions", R"({"prompt":"a","max_tokens":3,"stream":true,"tutti_resume":)"
                                R"({"id":"cmpl-1","created":7,"tokens":)" +
                                    tokens + "}}");
    EXPECT_EQ(answer.status, 400) << answer.body;
    return answer.body;
  };
  for (const char* tokens : {"[1,2,3,4]", "[257]", "7", "[-1]"}) {
    const std::string body = refused(tokens);
    EXPECT_EQ(*parsed(body).find("error")->find("param"), "tutti_resume") << body;
  }
  EXPECT_NE(refused("[1,2,3,4]").find("has 4 tokens already, and up to 3"), std::string::npos);
  // What its form does not allow was never said.
  const auto wrong =
      stream(*server, "/v1/completions",
             R"("prompt":"a","regex":"[ab]{9}","tutti_resume":{"id":"cmpl-1","created":7,"tokens":[97,99]})");
  ASSERT_EQ(wrong.size(), 2U);
  EXPECT_NE(wrong[0].data.find("not of the form"), std::string::npos) << wrong[0].data;
}

}  // namespace
}  // namespace tutti::serve
