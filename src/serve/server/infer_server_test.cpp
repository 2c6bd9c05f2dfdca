// The pages of a program, over real sockets, with a toy behind them.
#include "serve/server/infer_server.hpp"

#include <future>

#include "base/scarcity/scarcity.hpp"
#include "serve/infer/ask.hpp"
#include "serve/server/infer_pages_test.hpp"

namespace tutti::serve {
namespace {

TEST_F(InferPages, HaveWhatTheProtocolAsksFor) {
  listen();
  EXPECT_EQ(get("/v2/health/live").status, 200) << "it lives before it is ready";
  EXPECT_EQ(get("/v2/health/ready").status, 503);
  EXPECT_EQ(get("/health").status, 503);
  EXPECT_EQ(get("/v2/models/toy").status, 503);
  EXPECT_EQ(infer(body_of("1", 1)).status, 503);
  start();
  EXPECT_EQ(get("/v2/health/ready").status, 200);
  EXPECT_EQ(get("/health").status, 200);
  const auto server_card = json::parse(get("/v2").body);
  EXPECT_EQ(*server_card->find("name"), "tutti");
  EXPECT_EQ(*server_card->find("extensions"), json::Array{"binary_tensor_data"});
  for (const char* path : {"/v2/models/toy", "/v2/models/toy/versions/1"}) {
    const auto card = json::parse(get(path).body);
    EXPECT_EQ(*card->find("name"), "toy");
    EXPECT_EQ(*card->find("platform"), "pytorch_torchscript");
    EXPECT_EQ(*card->find("inputs")->list()->front().find("datatype"), "UINT8");
  }
  EXPECT_EQ(get("/v2/models/toy/ready").status, 200);
  EXPECT_EQ(get("/v2/models/toy/versions/1/ready").status, 200);
  for (const char* path :
       {"/v2/models/other", "/v2/models/toy/versions/2", "/v2/models/other/ready", "/v2/models",
        "/v2/models/toy/explain", "/v2/models/toy/infer/more", "/v1/models", "/"}) {
    const auto refused = get(path);
    EXPECT_EQ(refused.status, 404) << path;
    const auto error = json::parse(refused.body);
    ASSERT_TRUE(error && error->find("error") != nullptr) << refused.body;
    EXPECT_NE(error->find("error")->text(), nullptr) << refused.body;
  }
  EXPECT_EQ(request("POST", "/v2/models/other/infer", body_of("1", 1)).status, 404);
  EXPECT_EQ(get("/v2/models/toy/infer").status, 405);
  EXPECT_EQ(request("POST", "/v2").status, 405);
}

TEST_F(InferPages, AnswerInJson) {
  listen();
  start();
  const auto answer = infer(body_of("65,66", 2));
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(answer.body, R"({"model_name":"toy","model_version":"1","id":"1","outputs":[)"
                         R"({"name":"y","datatype":"UINT8","shape":[2],"data":[66,67]}]})");
  EXPECT_EQ(request("POST", "/v2/models/toy/versions/1/infer", body_of("1", 1)).status, 200);
  EXPECT_EQ(metric("finished_requests_total"), "2");
}

TEST_F(InferPages, AnswerInBytes) {
  listen();
  start();
  const std::string json =
      R"({"inputs":[{"name":"x","datatype":"UINT8","shape":[3],"parameters":{"binary_data_size":3}}],)"
      R"("parameters":{"binary_data_output":true}})";
  const RawClient client(server->port());
  client.send("POST /v2/models/toy/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: " +
              std::to_string(json.size() + 3) + "\r\nInference-Header-Content-Length: " +
              std::to_string(json.size()) + "\r\n\r\n" + json + "abc");
  const std::string answer = client.read_until("bcd");
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 200")) << answer;
  EXPECT_NE(answer.find("Content-Type: application/octet-stream"), std::string::npos) << answer;
  const std::string header = "\r\ninference-header-content-length: ";
  const std::size_t at = answer.find(header);
  ASSERT_NE(at, std::string::npos) << answer;
  const auto json_bytes = static_cast<std::size_t>(std::stoi(answer.substr(at + header.size())));
  const std::string body = answer.substr(answer.find("\r\n\r\n") + 4);
  EXPECT_EQ(body.substr(json_bytes), "bcd");
  EXPECT_TRUE(json::parse(body.substr(0, json_bytes)).ok()) << body;
}

TEST_F(InferPages, RefuseWhatIsWrong) {
  listen({{}, {.gather = {.rows_max = 4, .delay_max = 0ms}}});
  start();
  const auto says = [&](const std::string& body, int status, const std::string& part) {
    const auto answer = infer(body);
    EXPECT_EQ(answer.status, status) << answer.body;
    EXPECT_TRUE(answer.body.starts_with("{\"error\":\"")) << answer.body;
    EXPECT_NE(answer.body.find(part), std::string::npos) << answer.body;
  };
  says("", 400, "");
  says("{", 400, "");
  says("{}", 400, "inputs");
  says(body_of("1", 2), 400, "1 numbers");
  says(body_of("1", 99999999999), 400, "too large");
  says(body_of("1,2,3,4,5", 5), 400, "5 rows");
  says(R"({"inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":[1]}]})", 400, "UINT8");
  says(R"({"inputs":[{"name":"x","datatype":"UINT8","shape":[1],"data":[1]}],"outputs":[{"name":"q"}]})", 400,
       "no output 'q'");
  says(body_of(std::to_string(ToyProgram::refused), 1), 400, "an X is not taken");
  says(body_of(std::to_string(ToyProgram::deadly), 1), 503, "has ended: signal 9");
  // Before any of it is read.
  const RawClient client(server->port());
  client.send("POST /v2/models/toy/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999999999\r\n\r\n");
  const std::string refused = client.read_until("\"}");
  EXPECT_TRUE(refused.starts_with("HTTP/1.1 413")) << refused;
  EXPECT_NE(refused.find("{\"error\":\"the request is too large"), std::string::npos) << refused;
  EXPECT_EQ(infer(body_of("1", 1)).status, 200) << "and it goes on";
}

TEST_F(InferPages, OnlyWhoHasTheKeyMayAskAndProbesNeedNone) {
  InferSettings settings;
  settings.key = "0123456789abcdef";
  listen(settings);
  start();
  EXPECT_EQ(infer(body_of("1", 1)).status, 401);
  EXPECT_EQ(get("/v2/models/toy").status, 401);
  EXPECT_EQ(get("/v2").status, 401);
  EXPECT_EQ(get("/metrics").status, 401);
  EXPECT_EQ(get("/nowhere").status, 401);
  for (const char* path : {"/health", "/v2/health/live", "/v2/health/ready"})
    EXPECT_EQ(get(path).status, 200);
  EXPECT_EQ(request("POST", "/v2/models/toy/infer", body_of("1", 1), settings.key).status, 200);
}

// What waits is computed together; each gets his own rows.
TEST_F(InferPages, RequestsAreGathered) {
  listen({{}, {.gather = {.rows_max = 8, .delay_max = 0ms}}});
  start();
  program->shut();
  auto first = std::async(std::launch::async, [&] { return infer(body_of("1", 1)); });
  program->wait_for_runs(1);
  std::vector<std::future<net::Response>> others;
  for (int nth = 0; nth < 4; ++nth)
    others.push_back(
        std::async(std::launch::async, [&, nth] { return infer(body_of(std::to_string(10 + nth), 1)); }));
  while (server->counts().waiting < 4) std::this_thread::yield();
  program->open();
  EXPECT_EQ(first.get().status, 200);
  for (int nth = 0; nth < 4; ++nth)
    EXPECT_NE(others[static_cast<std::size_t>(nth)].get().body.find("[" + std::to_string(11 + nth) + "]"),
              std::string::npos);
  EXPECT_EQ(program->runs(), (std::vector<Dimensions>{{1}, {4}}));
  EXPECT_EQ(metric("batches_total"), "2");
  EXPECT_EQ(metric("rows_total"), "5");
}

TEST_F(InferPages, TooManyHear429AndThoseWhoLeaveAreForgotten) {
  listen({{}, {.requests_max = 2}});
  start();
  program->shut();
  auto first = std::async(std::launch::async, [&] { return infer(body_of("1", 1)); });
  program->wait_for_runs(1);
  {
    const RawClient leaves(server->port());
    leaves.post("/v2/models/toy/infer", body_of("2", 1));
    while (server->counts().waiting < 1) std::this_thread::yield();
    const RawClient third(server->port());
    third.post("/v2/models/toy/infer", body_of("3", 1));
    const std::string refused = third.read_until("\"}");
    EXPECT_TRUE(refused.starts_with("HTTP/1.1 429")) << refused;
    EXPECT_NE(refused.find("Retry-After: 1"), std::string::npos) << refused;
  }
  while (server->counts().waiting > 0) std::this_thread::yield();
  EXPECT_EQ(metric("cut_off_total"), "1");
  program->open();
  EXPECT_EQ(first.get().status, 200);
  EXPECT_EQ(program->runs().size(), 1U) << "who left was not computed";
}

TEST_F(InferPages, WhereThereIsNoMemoryToComputeARequestItHears429) {
  listen();
  start();
  const auto hungry = infer(body_of(std::to_string(ToyProgram::hungry), 1));
  EXPECT_EQ(hungry.status, 429) << hungry.body;
  EXPECT_NE(hungry.body.find("no memory"), std::string::npos) << hungry.body;
  EXPECT_EQ(infer(body_of("1", 1)).status, 200) << "and it goes on";
}

// Numbers of JSON take many times the room of the tensor.
TEST_F(InferPages, WhereThereIsNoMemoryToWriteAnAnswerItsRequestHears429) {
  listen();
  start();
  program->shut();
  constexpr std::size_t count = std::size_t{4} << 20;
  const std::string json = R"({"inputs":[{"name":"x","datatype":"UINT8","shape":[)" + std::to_string(count) +
                           R"(],"parameters":{"binary_data_size":)" + std::to_string(count) + "}}]}";
  const RawClient client(server->port());
  client.send("POST /v2/models/toy/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: " +
              std::to_string(json.size() + count) + "\r\nInference-Header-Content-Length: " +
              std::to_string(json.size()) + "\r\n\r\n" + json + std::string(count, 'z'));
  program->wait_for_runs(1);
  std::string answer;
  {
    const Scarcity scarcity(count / 2 * 3);
    program->open();
    answer = client.read_until("\"}");
  }
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 429")) << answer.substr(0, 500);
  EXPECT_NE(answer.find("no memory"), std::string::npos) << answer.substr(0, 500);
  EXPECT_EQ(infer(body_of("1", 1)).status, 200) << "and it goes on";
}

TEST_F(InferPages, DrainingFinishesWhatRuns) {
  listen();
  start();
  program->shut();
  auto first = std::async(std::launch::async, [&] { return infer(body_of("1", 1)); });
  program->wait_for_runs(1);
  server->drain();
  while (get("/health").status != 503) std::this_thread::yield();
  EXPECT_EQ(infer(body_of("2", 1)).status, 503);
  EXPECT_EQ(get("/v2/health/live").status, 200);
  program->open();
  EXPECT_EQ(first.get().status, 200);
  thread.join();
}

TEST_F(InferPages, DrainingDoesNotWaitForEver) {
  InferSettings hasty;
  hasty.drain_time_max = 1ms;
  listen(hasty);
  start();
  program->shut();
  auto first = std::async(std::launch::async, [&] { return infer(body_of("1", 1)); });
  program->wait_for_runs(1);
  server->drain();
  const auto told = first.get();
  EXPECT_EQ(told.status, 503);
  EXPECT_NE(told.body.find("about to stop"), std::string::npos) << told.body;
  thread.join();
}

}  // namespace
}  // namespace tutti::serve
