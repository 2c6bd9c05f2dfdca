// How addresses share an engine, over HTTP.
#include "serve/server/serving_test.hpp"

namespace tutti::serve {
namespace {

TEST_F(Serving, WhoAsksForLittleDoesNotWaitBehindAnAddressThatAsksForMuch) {
  auto few = settings();
  few.batch.sequences_max = 2;
  serve(few);
  constexpr int asked = 40;
  std::vector<std::unique_ptr<RawClient>> flood;
  for (int nth = 0; nth < asked; ++nth) {
    flood.push_back(std::make_unique<RawClient>(server->port(), 0, "127.0.0.2"));
    flood.back()->post("/v1/completions",
                       R"({"prompt":"flood","max_tokens":4000,"ignore_eos":true,"temperature":0})");
  }
  wait_until([&] {
    const BatchCounts counts = server->counts().batch;
    return counts.requests + counts.finished == asked;
  });
  EXPECT_EQ(post("/v1/completions", R"({"prompt":"b","max_tokens":2})").status, 200);
  EXPECT_GT(server->counts().batch.waiting, 0) << "it was answered before those who had waited longer";
  EXPECT_FALSE(flood.back()->has_answer());
}

void ask_for(const RawClient& client, const std::string& who, const std::string& body) {
  client.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTutti-Asker: " + who +
              "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
}

TEST_F(Serving, BehindAGatewayThatIsBelievedTheSameHoldsBetweenThoseForWhomItAsks) {
  auto few = settings();
  few.batch.sequences_max = 2;
  few.names_askers = true;
  serve(few);
  constexpr int asked = 40;
  std::vector<std::unique_ptr<RawClient>> flood;
  for (int nth = 0; nth < asked; ++nth) {
    flood.push_back(std::make_unique<RawClient>(server->port()));
    ask_for(*flood.back(), "bob",
            R"({"prompt":"flood","max_tokens":4000,"ignore_eos":true,"temperature":0})");
  }
  wait_until([&] {
    const BatchCounts counts = server->counts().batch;
    return counts.requests + counts.finished == asked;
  });
  const RawClient ada(server->port());
  ask_for(ada, "ada", R"({"prompt":"b","max_tokens":2})");
  EXPECT_TRUE(ada.read_until("\"usage\"").starts_with("HTTP/1.1 200"));
  EXPECT_GT(server->counts().batch.waiting, 0) << "it was answered before those who had waited longer";
  EXPECT_FALSE(flood.back()->has_answer());
  const auto health = json::parse(get("/health").body);
  ASSERT_TRUE(health);
  EXPECT_GT(health->find("waiting")->whole(), 0);
  EXPECT_GT(health->find("running")->whole(), 0);
  EXPECT_GT(health->find("cache_used")->number(), 0);
}

}  // namespace
}  // namespace tutti::serve
