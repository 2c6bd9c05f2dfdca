// Ten thousand requests of somebody who means no good: each is answered, none with a failure of ours, and
// nothing of them stays.
#include "base/json/write.hpp"
#include "base/prng.hpp"
#include "serve/server/infer_pages_test.hpp"
#include "serve/server/serving_test.hpp"

namespace tutti::serve {
namespace {

constexpr int requests = 10'000;
constexpr int infer_requests = 3'000;
constexpr int explosions_every = 1'000;  // requests; each takes all the work that a form may take
constexpr std::uint64_t seed_of_malice = 20'261'116;

const std::vector<std::string> good_bodies{
    R"({"prompt":"abc","max_tokens":2,"temperature":0.5,"stop":["x"],"logit_bias":{"5":1}})",
    R"({"prompt":["a","b"],"max_tokens":1,"n":2,"logprobs":3,"seed":7})",
    R"({"prompt":"a","max_tokens":3,"regex":"[a-c]{2}"})",
    R"({"prompt":"a","max_tokens":3,"response_format":{"type":"json_object"}})",
    R"({"messages":[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"t"}]}],"max_tokens":2})",
    R"({"messages":[{"role":"user","content":"é"}],"max_tokens":2,"tools":[{"type":"function","function":{"name":"f"}}]})",
    R"({"prompt":"abc","max_tokens":2,"stream":true,"stream_options":{"include_usage":true},"logprobs":1})",
    R"({"messages":[{"role":"user","content":"a"}],"max_tokens":2,"stream":true,"n":2})",
    R"({"prompt":"a","max_tokens":3,"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"object",
       "properties":{"a":{"enum":["x","y"]},"b":{"type":"array","items":{"type":"integer"},"maxItems":2}},"required":["a"]}}}})",
    R"({"input":["a","b"],"encoding_format":"base64"})",
    R"({"input":[1,2,3],"model":"tiny"})"};

const std::vector<std::string> paths{"/v1/completions", "/v1/chat/completions", "/v1/embeddings"};

// Schemas that are small, and large once they are followed.
const std::vector<std::string> explosions{
    R"({"type":"string","pattern":"((a?){150}){150}"})", R"({"type":"string","pattern":"(.*a.{20})*"})",
    R"({"type":"array","maxItems":100000,"items":{"type":"string","maxLength":100000}})",
    R"({"$ref":"#/$defs/a","$defs":{"a":{"anyOf":[{"$ref":"#/$defs/b"},{"$ref":"#/$defs/b"}]},)"
    R"("b":{"anyOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/a"}]}}})"};

std::string exploding(std::uint64_t nth) {
  return R"({"prompt":"a","max_tokens":2,"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":)" +
         explosions[nth % explosions.size()] + "}}}";
}

const std::vector<std::string> good_tensors{
    body_of("1,2,3", 3),
    R"({"inputs":[{"name":"x","datatype":"UINT8","shape":[2,2],"data":[[1,2],[3,4]]}],"outputs":[{"name":"y"}]})",
    R"({"id":"a","inputs":[{"name":"x","datatype":"UINT8","shape":[1],"data":[7]}],"parameters":{"binary_data_output":true}})",
    R"({"inputs":[{"name":"x","datatype":"UINT8","shape":[1],"parameters":{"binary_data_size":1}}]})"};

const std::vector<std::string> odd_values{"null",
                                          "true",
                                          "-1",
                                          "0",
                                          "1e999",
                                          "-0.0",
                                          "99999999999999999999999",
                                          "\"\"",
                                          "\"\\ud800\"",
                                          "\"\xff\"",
                                          "[]",
                                          "[[[[]]]]",
                                          "{}",
                                          "{\"\":{}}",
                                          "[null,1,\"a\"]",
                                          "\"" + std::string(3000, 'a') + "\""};

// A body that was good once.
std::string spoiled(const std::vector<std::string>& good, Prng& random) {
  std::string body = good[random.below(good.size())];
  const auto place = [&] { return random.below(body.size()); };
  switch (random.below(6)) {
    case 0:  // cut off
      body.resize(place());
      break;
    case 1:  // another byte
      body[place()] = static_cast<char>(random.below(256));
      break;
    case 2:  // a byte more
      body.insert(place(), 1, static_cast<char>(random.below(256)));
      break;
    case 3: {  // another value of a field
      auto root = json::parse(body);
      std::vector<std::string> keys;
      for (const auto& [key, value] : *root->object()) keys.push_back(key);
      const std::string marked = "\"@\"";
      (*root)[keys[random.below(keys.size())]] = "@";
      body = json::write(*root);
      body.replace(body.find(marked), marked.size(), odd_values[random.below(odd_values.size())]);
      break;
    }
    case 4:  // deep
      body = (random.chance(0.5) ? "{\"prompt\":" : "{\"inputs\":") +
             std::string(1 + random.below(5000), '[') + "1";
      break;
    case 5:  // bytes
      for (char& byte : body) byte = static_cast<char>(random.below(256));
      break;
  }
  return body;
}

TEST_F(Serving, TenThousandMalformedRequestsAreAnsweredAndLeaveNothing) {
  serve(settings(), 64);
  Prng random(seed_of_malice);
  auto own = client();
  int refused = 0;
  for (int nth = 0; nth < requests; ++nth) {
    const bool explodes = nth % explosions_every == 0;
    const std::string path = explodes ? paths[0] : paths[random.below(paths.size())];
    const std::string body = explodes ? exploding(static_cast<std::uint64_t>(nth / explosions_every))
                                      : spoiled(good_bodies, random);
    const auto answer = own.request("POST", path, body);
    ASSERT_TRUE(answer) << "request " << nth << ": " << answer.error().text() << "\n" << body;
    ASSERT_TRUE(answer->status == 200 || (answer->status >= 400 && answer->status < 500))
        << "request " << nth << " got " << answer->status << ": " << answer->body << "\n"
        << body;
    if (answer->status == 200) continue;
    ++refused;
    const auto told = json::parse(answer->body);
    ASSERT_TRUE(told && told->find("error") != nullptr && told->find("error")->find("message") != nullptr)
        << answer->body;
  }
  EXPECT_GT(refused, requests / 2);
  EXPECT_EQ(get("/health").status, 200);
  EXPECT_TRUE(is_idle());
}

TEST_F(InferPages, ThreeThousandMalformedRequestsAreAnsweredAndLeaveNothing) {
  listen({{}, {.gather = {.rows_max = 8, .delay_max = 0ms}}});
  start();
  Prng random(seed_of_malice);
  net::Client own({.host = "127.0.0.1", .port = server->port()}, "");
  int refused = 0;
  for (int nth = 0; nth < infer_requests; ++nth) {
    const std::string body = spoiled(good_tensors, random);
    const auto answer = own.request("POST", "/v2/models/toy/infer", body);
    ASSERT_TRUE(answer) << "request " << nth << ": " << answer.error().text() << "\n" << body;
    // A toy of bytes: whoever writes an X, a D or an H into them is told so.
    const bool is_told = answer->status >= 400 && answer->status < 500;
    ASSERT_TRUE(answer->status == 200 || is_told || answer->status == 503)
        << "request " << nth << " got " << answer->status << ": " << answer->body << "\n"
        << body;
    if (answer->status == 200) continue;
    ++refused;
    const auto told = json::parse(answer->body);
    ASSERT_TRUE(told && told->find("error") != nullptr && told->find("error")->text() != nullptr)
        << answer->body;
  }
  EXPECT_GT(refused, infer_requests / 2);
  EXPECT_EQ(infer(body_of("1", 1)).status, 200);
  const RunnerCounts counts = server->counts();
  EXPECT_EQ(counts.waiting + counts.running, 0);
}

TEST_F(Serving, HeadsThatAreNoneAreAnsweredOrLeft) {
  serve();
  Prng random(seed_of_malice);
  const std::string good =
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 14\r\n\r\n{\"prompt\":\"a\"}";
  std::vector<std::string> heads{
      "GET / HTTP/1.1\r\n" + std::string(1 << 20, 'a') + ": b\r\n\r\n",
      "GET /" + std::string(1 << 20, 'a') + " HTTP/1.1\r\n\r\n",
      "POST /v1/completions HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
      "POST /v1/completions HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
      "POST /v1/completions HTTP/1.1\r\nContent-Length: 99999999\r\n\r\nx",
      "POST /v1/models HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello",
      "POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
      "GET /v1/models HTTP/9.9\r\n\r\n",
      "\r\n\r\n\r\n",
      std::string(4096, '\0')};
  for (int nth = 0; nth < 300; ++nth) {
    std::string head = good;
    head[random.below(head.size())] = static_cast<char>(random.below(256));
    heads.push_back(head.substr(0, 1 + random.below(head.size())));
  }
  for (const std::string& head : heads) {
    const RawClient rude(server->port());
    rude.send(head);
    rude.says_no_more();
    const std::string answer = rude.read_until("");
    EXPECT_TRUE(answer.empty() || answer.starts_with("HTTP/1.1 4") || answer.starts_with("HTTP/1.1 2") ||
                answer.starts_with("HTTP/1.0 "))
        << head.substr(0, 200) << "\n"
        << answer.substr(0, 200);
    EXPECT_EQ(answer.find("HTTP/1.1 5"), std::string::npos);
  }
  EXPECT_EQ(get("/health").status, 200);
  wait_until([&] { return is_idle(); });
}

}  // namespace
}  // namespace tutti::serve
