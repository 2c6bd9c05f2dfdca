// Keys of a file: who may ask what, how often and how much, and who sees it.
#include <cstdlib>
#include <filesystem>
#include <span>

#include "base/files/files.hpp"
#include "gate/gateway/key_file.hpp"
#include "gate/gateway/stub_test.hpp"
#include "net/sync/digest.hpp"

namespace tutti::gate {
namespace {

const std::string ada = "key-of-ada-0123456789";
const std::string bob = "key-of-bob-0123456789";
const std::string master = "key-of-the-master-012345";

std::string line(const std::string& name, const std::string& key, const std::string& more = "") {
  return "{\"name\":\"" + name + "\",\"sha256\":\"" + sync::hash_bytes(std::as_bytes(std::span(key))) + "\"" +
         more + "}\n";
}

class KeysTest : public GatewayTest {
 protected:
  void SetUp() override { ASSERT_NE(::mkdtemp(folder_.data()), nullptr); }
  void TearDown() override {
    GatewayTest::TearDown();
    std::filesystem::remove_all(folder_);
  }
  std::string file() const { return folder_ + "/keys"; }
  void write(const std::string& text) const { ASSERT_TRUE(files::replace_file(file(), text)); }
  void serve(const std::string& keys, Stub& stub) {
    write(keys);
    GatewaySettings settings;
    settings.key = master;
    settings.keys_file = file();
    settings.look_at_keys_every = 10ms;
    begin({&stub}, std::move(settings));
  }
  struct Answer {
    int status = 0;
    std::string body;
    int retry_after = 0;
  };
  Answer as(const std::string& key, const std::string& body,
            const std::string& path = "/v1/completions") const {
    auto asks = client(key);
    const auto answer = asks.request(body.empty() ? "GET" : "POST", path, body);
    EXPECT_TRUE(answer) << answer.error().text();
    return answer ? Answer{answer->status, answer->body, asks.retry_after_seconds()} : Answer{};
  }

  std::string folder_ = std::filesystem::temp_directory_path().string() + "/tutti-keys.XXXXXX";
};

TEST_F(KeysTest, WhoHasNoneOrMayNotHearsSo) {
  Stub stub({"m", "other"});
  stub.then(Stub::answer(200, "ok"));
  serve(line("ada", ada, ",\"models\":[\"m\"]"), stub);
  EXPECT_EQ(as("", whole).status, 401);
  EXPECT_EQ(as("key-of-nobody-0123456789", whole).status, 401);
  EXPECT_EQ(as(ada, whole).status, 200);
  const Answer refused = as(ada, R"({"model":"other"})");
  EXPECT_EQ(refused.status, 403);
  EXPECT_NE(refused.body.find("model_not_allowed"), std::string::npos) << refused.body;
  EXPECT_EQ(as(ada, R"({"model":"none"})").status, 403) << "what there is besides is not told";
  EXPECT_EQ(as(ada, R"({"prompt":"x"})").status, 403);
  EXPECT_EQ(as(ada, "{}", "/v2/models/other/infer").status, 403);
  EXPECT_EQ(as(ada, "", "/v1/models").body.find("other"), std::string::npos);
  EXPECT_EQ(as(ada, "", "/v1/models/other").status, 404);
  EXPECT_EQ(as(master, R"({"model":"other"})").status, 200);
}

TEST_F(KeysTest, SoOftenAndSoMuchAsItMay) {
  Stub stub;
  stub.then(Stub::answer(200, R"({"usage":{"total_tokens":20}})"));
  stub.then(Stub::stream(tokens(" 1 2 3") + data("a") + finish + done));
  stub.then(Stub::answer(200, "ok"));
  serve(line("ada", ada, ",\"requests_per_minute\":2") + line("bob", bob, ",\"tokens_per_day\":22"), stub);
  EXPECT_EQ(as(bob, whole).status, 200);
  EXPECT_EQ(as(bob, streamed).status, 200);
  while (as(bob, "", "/metrics").body.find("key_tokens_total{key=\"bob\"} 2") == std::string::npos ||
         as(bob, "", "/metrics").body.find("key_tokens_total{key=\"bob\"} 20\n") != std::string::npos)
    std::this_thread::yield();
  const Answer spent = as(bob, whole);
  EXPECT_EQ(spent.status, 429);
  EXPECT_NE(spent.body.find("insufficient_quota"), std::string::npos) << spent.body;
  EXPECT_GT(spent.retry_after, 0);
  EXPECT_EQ(as(ada, whole).status, 200);
  EXPECT_EQ(as(ada, whole).status, 200);
  const Answer often = as(ada, whole);
  EXPECT_EQ(often.status, 429);
  EXPECT_NE(often.body.find("rate_limit_exceeded"), std::string::npos) << often.body;
  EXPECT_GT(often.retry_after, 0);
  EXPECT_LE(often.retry_after, 30);
  EXPECT_EQ(as(master, whole).status, 200);
}

TEST_F(KeysTest, NobodySeesTheUsageOfAnotherAndNobodyAKey) {
  Stub stub;
  stub.then(Stub::answer(200, "ok"));
  serve(line("ada", ada) + line("bob", bob), stub);
  EXPECT_EQ(as(ada, whole).status, 200);
  EXPECT_EQ(as(bob, whole).status, 200);
  const std::string own = as(ada, "", "/metrics").body;
  EXPECT_NE(own.find("tutti_gateway_key_requests_total{key=\"ada\"} 1\n"), std::string::npos) << own;
  EXPECT_EQ(own.find("bob"), std::string::npos) << own;
  EXPECT_EQ(own.find("backend"), std::string::npos) << own;
  EXPECT_EQ(as("", "", "/metrics").status, 401);
  const std::string all = as(master, "", "/metrics").body;
  for (const char* const name : {"ada", "bob"})
    EXPECT_NE(all.find("key_requests_total{key=\"" + std::string(name) + "\"} 1\n"), std::string::npos)
        << all;
  for (const std::string& text : {own, all}) {
    for (const std::string& key : {ada, bob, master}) EXPECT_EQ(text.find(key), std::string::npos);
  }
}

TEST_F(KeysTest, TheFileIsReadAgainWhenItIsAnother) {
  Stub stub;
  stub.then(Stub::answer(200, "ok"));
  serve(line("ada", ada), stub);
  EXPECT_EQ(as(ada, whole).status, 200);
  write(line("bob", bob));
  while (as(bob, whole).status != 200) std::this_thread::yield();
  EXPECT_EQ(as(ada, whole).status, 401);
  // What is not understood changes nothing.
  write("{\"name\":\"ada\"}\n");
  for (int times = 0; times < 5; ++times) EXPECT_EQ(as(bob, whole).status, 200);
}

TEST_F(KeysTest, AFileThatOthersCanReadIsRefused) {
  write(line("ada", ada));
  std::filesystem::permissions(file(), std::filesystem::perms(0640));
  KeyFile keys(file());
  const auto read = keys.look();
  ASSERT_FALSE(read);
  EXPECT_NE(read.error().remedy().find("chmod 600"), std::string::npos);
  EXPECT_EQ(keys.find(ada), nullptr);
  EXPECT_FALSE(Gateway::listen([&] {
    GatewaySettings settings;
    settings.keys_file = file();
    return settings;
  }()));
}

}  // namespace
}  // namespace tutti::gate
