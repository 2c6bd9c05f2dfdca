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

}  // namespace
}  // namespace tutti::serve
