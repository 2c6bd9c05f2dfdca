// Ten thousand requests of somebody who means no good: each is answered, none with a failure of ours, and
// nothing of them stays.
#include "base/json/write.hpp"
#include "base/prng.hpp"
#include "serve/server/serving_test.hpp"

namespace tutti::serve {
namespace {

constexpr int requests = 10'000;
constexpr std::uint64_t seed_of_malice = 20'261'116;

const std::vector<std::string> good_bodies{
    R"({"prompt":"abc","max_tokens":2,"temperature":0.5,"stop":["x"],"logit_bias":{"5":1}})",
    R"({"prompt":["a","b"],"max_tokens":1,"n":2,"logprobs":3,"seed":7})",
    R"({"prompt":"a","max_tokens":3,"regex":"[a-c]{2}"})",
    R"({"prompt":"a","max_tokens":3,"response_format":{"type":"json_object"}})",
    R"({"messages":[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"t"}]}],"max_tokens":2})",
    R"({"messages":[{"role":"user","content":"é"}],"max_tokens":2,"tools":[{"type":"function","function":{"name":"f"}}]})"};

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
std::string spoiled(Prng& random) {
  std::string body = good_bodies[random.below(good_bodies.size())];
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
      body = "{\"prompt\":" + std::string(1 + random.below(5000), '[') + "1";
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
    const std::string path = random.chance(0.5) ? "/v1/completions" : "/v1/chat/completions";
    const std::string body = spoiled(random);
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

TEST_F(Serving, HeadsThatAreNoneAreAnsweredOrLeft) {
  serve();
  Prng random(seed_of_malice);
  const std::string good =
      "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 14\r\n\r\n{\"prompt\":\"a\"}";
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
