// Contents of shipped folders are read and written beside the loop that hears the agents.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <latch>
#include <thread>

#include <gtest/gtest.h>

#include "base/bytes.hpp"
#include "base/clock/clock.hpp"
#include "control/controller/audit_keeper.hpp"
#include "control/controller/call.hpp"
#include "control/controller/janitor.hpp"
#include "control/controller/login.hpp"
#include "control/controller/vault.hpp"
#include "control/store/memory/memory_store.hpp"
#include "net/sync/digest.hpp"
#include "net/sync/manifest.hpp"
#include "net/sync/power_cut_test.hpp"

namespace tutti::controller {
namespace {

class BlobExchange final : public net::Exchange {
 public:
  struct Answer {
    net::Response response;
    std::thread::id thread;
  };
  explicit BlobExchange(std::string body) {
    request_.body = std::move(body);
    request_.remote = "10.0.0.1";
  }

  const net::Request& request() const override { return request_; }
  void answer(net::Response response) override {
    answered_.set_value({std::move(response), std::this_thread::get_id()});
  }
  std::shared_ptr<net::Stream> stream(std::function<void()>) override { return nullptr; }
  void upgrade(std::function<void(std::shared_ptr<net::Socket>)>) override {}

  Answer wait() { return answered_.get_future().get(); }

 private:
  net::Request request_;
  std::promise<Answer> answered_;
};

Identity by_root() { return {.caller = people::root_caller(), .credential = people::root_credential}; }

struct BlobRoutes : testing::Test {
  const std::string folder = testing::TempDir() + "tutti-blob-routes-" + std::to_string(::getpid());
  store::MemoryStore store;
  net::Loop loop;
  Core core{store, [](const driver::Delivery&) {}};
  Hub hub{loop, core};
  Explainer explainer;
  sync::BlobStore blobs{folder};
  Desk desk{blob_desk};
  Desk nodes_desk{node_desk};
  DiskRoom disk{gib(100), gib(200)};
  Janitor janitor{core, {.folder = folder, .disk = [this] { return std::optional(disk); }}};
  Login login{{}, nullptr, now_steady, now_on_the_wall};
  Desk login_desk{controller::login_desk};
  Desk audit_desk{controller::audit_desk};
  AuditKeeper audit{core, {.folder = folder}};
  Vault vault{core, folder};
  Services services{core,    hub,   explainer,  blobs,      desk,  nodes_desk,
                    janitor, login, login_desk, audit_desk, audit, vault};

  void TearDown() override { std::filesystem::remove_all(folder); }

  BlobExchange::Answer ask(std::string_view method, std::string_view path, const Arguments& arguments,
                           std::string body) {
    const auto exchange = std::make_shared<BlobExchange>(std::move(body));
    for (const Route& route : routes()) {
      if (route.method == method && route.path == path)
        route.handle(Call(services, exchange, arguments, by_root()));
    }
    return exchange->wait();
  }
  int put(const std::string& content) {
    return ask("PUT", "/blobs/{hash}", {{"hash", sync::hash_bytes(as_bytes(content))}}, content)
        .response.status;
  }
  // Whoever ships the folder again is not to wait before that.
  int refused(const std::string& manifest) {
    const auto response = submit(manifest);
    EXPECT_EQ(response.retry_after_seconds, 0);
    EXPECT_NE(response.body.find("not here"), std::string::npos) << response.body;
    return response.status;
  }
  net::Response submit(const std::string& manifest) {
    return ask("POST", "/jobs", {}, R"({"jobs":[{"command":["true"],"sync":")" + manifest + "\"}]}").response;
  }
};

TEST_F(BlobRoutes, AnswerFromAnotherThreadThanTheLoops) {
  const std::string content = "content";
  const std::string hash = sync::hash_bytes(as_bytes(content));
  const Arguments named{{"hash", hash}};
  const auto missing = ask("POST", "/blobs/missing", {}, "[\"" + hash + "\"]");
  EXPECT_EQ(missing.response.body, "[\"" + hash + "\"]\n");
  const auto put = ask("PUT", "/blobs/{hash}", named, content);
  EXPECT_EQ(put.response.status, 200);
  const auto got = ask("GET", "/blobs/{hash}", named, "");
  EXPECT_EQ(got.response.body, content);
  for (const auto& answer : {missing, put, got}) EXPECT_NE(answer.thread, std::this_thread::get_id());
}

// An agent takes 404 for the last word, and its job has failed then.
TEST_F(BlobRoutes, WhatCannotBeReadNowIsNotToldAsMissing) {
  const std::string content = "content";
  const std::string hash = sync::hash_bytes(as_bytes(content));
  const Arguments named{{"hash", hash}};
  EXPECT_EQ(ask("GET", "/blobs/{hash}", named, "").response.status, 404);
  EXPECT_EQ(ask("GET", "/blobs/{hash}", {{"hash", "none"}}, "").response.status, 404);
  EXPECT_EQ(ask("PUT", "/blobs/{hash}", named, content).response.status, 200);
  const std::string place = blobs.path_of(hash);
  std::filesystem::rename(place, folder + "/aside");
  std::filesystem::create_directory(place);
  const auto unreadable = ask("GET", "/blobs/{hash}", named, "").response;
  EXPECT_EQ(unreadable.status, 503) << unreadable.body;
  EXPECT_GT(unreadable.retry_after_seconds, 0);
  std::filesystem::remove(place);
  std::filesystem::rename(folder + "/aside", place);
  EXPECT_EQ(ask("GET", "/blobs/{hash}", named, "").response.body, content);
}

// The job would be in the store after a power cut, and what it runs would not.
TEST_F(BlobRoutes, WhatAnAcceptedJobShipsOutlivesAPowerCut) {
  ASSERT_TRUE(core.start().ok());
  sync::Disk& power = sync::Disk::instance();
  power.begin();
  const std::string content = "content";
  const std::string hash = sync::hash_bytes(as_bytes(content));
  sync::Manifest manifest;
  manifest.entries.push_back({.path = "file", .chunks = {hash}, .bytes = Bytes(7)});
  const std::string encoded = sync::encode(manifest);
  const std::string root = sync::hash_bytes(as_bytes(encoded));
  const std::string asked = "[\"" + hash + "\"]";

  EXPECT_EQ(refused(root), 409) << "there is no such folder";
  EXPECT_EQ(put(encoded), 200);
  EXPECT_EQ(refused(root), 409) << "its content is not there";
  EXPECT_EQ(put(content), 200);
  power.cut_power(folder);
  std::filesystem::create_directories(std::filesystem::path(blobs.path_of(hash)).parent_path());
  std::ofstream(blobs.path_of(hash)) << "cont";
  EXPECT_EQ(put(encoded), 200);
  EXPECT_EQ(refused(root), 409) << "its content is not as long as it was";
  EXPECT_EQ(ask("POST", "/blobs/missing", {}, asked).response.body, asked + "\n") << "it is to be sent again";
  EXPECT_EQ(put(content), 200);
  power.fail_with(EIO);
  const auto failing = submit(root);
  EXPECT_EQ(failing.status, 503) << failing.body;
  EXPECT_GT(failing.retry_after_seconds, 0);
  power.fail_with(0);
  const auto accepted = submit(root);
  EXPECT_EQ(accepted.status, 200) << accepted.body;
  power.cut_power(folder);
  EXPECT_EQ(ask("GET", "/blobs/{hash}", {{"hash", root}}, "").response.body, encoded);
  EXPECT_EQ(ask("GET", "/blobs/{hash}", {{"hash", hash}}, "").response.body, content);

  manifest.entries.front().bytes = Bytes(6);
  const std::string lie = sync::encode(manifest);
  EXPECT_EQ(put(lie), 200);
  EXPECT_EQ(submit(sync::hash_bytes(as_bytes(lie))).status, 400);
  EXPECT_TRUE(blobs.has(hash)) << "others need it";
  desk.stop();
  core.stop();
}

// A folder of one file that is there, by the hash of its list.
std::string ship(BlobRoutes& test, const std::string& content) {
  sync::Manifest manifest;
  manifest.entries.push_back({.path = "file",
                              .chunks = {sync::hash_bytes(as_bytes(content))},
                              .bytes = Bytes(static_cast<std::int64_t>(content.size()))});
  const std::string encoded = sync::encode(manifest);
  EXPECT_EQ(test.put(content), 200);
  EXPECT_EQ(test.put(encoded), 200);
  return sync::hash_bytes(as_bytes(encoded));
}

// A slow disk writes for longer than is kept what nobody needs.
TEST_F(BlobRoutes, WhatIsRemovedWhileItIsWrittenIsNotAccepted) {
  ASSERT_TRUE(core.start().ok());
  sync::Disk& power = sync::Disk::instance();
  power.begin();
  const std::string root = ship(*this, "content");
  const std::string content = blobs.path_of(sync::hash_bytes(as_bytes(std::string("content"))));
  power.while_it_writes([&] { std::filesystem::remove(content); });
  EXPECT_EQ(refused(root), 409);
  EXPECT_EQ(put("content"), 200);
  EXPECT_EQ(submit(root).status, 200);
  desk.stop();
  core.stop();
}

TEST_F(BlobRoutes, NobodyWaitsForADiskToBeRefused) {
  ASSERT_TRUE(core.start().ok());
  sync::Disk& power = sync::Disk::instance();
  power.begin();
  const std::string root = ship(*this, "content");
  const auto submit_to = [&](const std::string& queue, const std::string& key) {
    return ask("POST", "/jobs", {},
               R"({"key":")" + key + R"(","jobs":[{"command":["true"],"queue":")" + queue + R"(","sync":")" +
                   root + "\"}]}")
        .response;
  };
  power.syncs();
  const auto refused = submit_to("none", "one");
  EXPECT_EQ(refused.status, 400);
  EXPECT_NE(refused.body.find("there is no queue"), std::string::npos) << refused.body;
  EXPECT_EQ(power.syncs(), 0U);
  const auto accepted = submit_to("default", "two");
  EXPECT_EQ(accepted.status, 200) << accepted.body;
  EXPECT_GT(power.syncs(), 0U);
  std::filesystem::remove_all(folder);
  const auto again = submit_to("default", "two");
  EXPECT_EQ(again.status, 200) << "it was done, and what became of its folder since is another thing";
  EXPECT_EQ(again.body, accepted.body);
  desk.stop();
  core.stop();
}

// Or the ends of jobs could not be stored.
TEST_F(BlobRoutes, LeaveTheStoreItsRoomOnTheDisk) {
  ASSERT_TRUE(core.start().ok());
  const std::string content = "content";
  const Arguments named{{"hash", sync::hash_bytes(as_bytes(content))}};
  disk.free = mib(1);
  const auto refused = ask("PUT", "/blobs/{hash}", named, content).response;
  EXPECT_EQ(refused.status, 507);
  EXPECT_NE(refused.body.find("no room for shipped folders"), std::string::npos) << refused.body;
  disk.free = gib(100);
  EXPECT_EQ(ask("PUT", "/blobs/{hash}", named, content).response.status, 200);
  disk.free = mib(1);
  EXPECT_EQ(ask("PUT", "/blobs/{hash}", named, content).response.status, 200) << "it is there already";
  core.stop();
}

TEST_F(BlobRoutes, RefuseToLookForWhatIsNoHash) {
  const std::string hash(64, 'a');
  const auto answer = [this](const std::string& body) {
    return ask("POST", "/blobs/missing", {}, body).response;
  };
  EXPECT_EQ(answer("[]").body, "[]\n");
  for (const std::string& body :
       {std::string("{}"), std::string("[7]"), std::string(R"(["../../etc/passwd"])"),
        "[\"" + std::string(64, 'A') + "\"]", "[\"" + std::string(1 << 20, 'a') + "\"]"}) {
    EXPECT_EQ(answer(body).status, 400) << body.substr(0, 80);
    EXPECT_LT(answer(body).body.size(), 500U) << "what was sent does not come back";
  }
  const auto twice = answer("[\"" + hash + "\",\"" + hash + "\"]");
  EXPECT_EQ(twice.status, 400);
  EXPECT_NE(twice.body.find("is there twice"), std::string::npos);
}

TEST_F(BlobRoutes, RefuseMillionsOfValuesBeforeTheyAreMade) {
  std::string many = "[[";
  while (many.size() < net::body_bytes_max - 8) many += "[],";
  const auto refused = ask("POST", "/blobs/missing", {}, many + "[]]]").response;
  EXPECT_EQ(refused.status, 400);
  EXPECT_NE(refused.body.find("more values than are taken here"), std::string::npos) << refused.body;
}

// Fills a desk until the gate opens: of many addresses, or of this one.
void fill(Desk& desk, const DeskOptions& options, const std::shared_future<void>& open,
          const std::string& address = "") {
  std::latch busy(static_cast<std::ptrdiff_t>(options.threads));
  for (std::size_t thread = 0; thread < options.threads; ++thread) {
    ASSERT_TRUE(desk.run("first", [open, &busy] {
      busy.count_down();
      open.wait();
    }));
  }
  busy.wait();
  std::size_t others = 0;
  const auto next = [&] { return address.empty() ? std::to_string(++others) : address; };
  while (desk.run(next(), [open] { open.wait(); })) continue;
}

TEST_F(BlobRoutes, RefuseWhatIsTooMuchAtOnce) {
  std::promise<void> gate;
  fill(nodes_desk, node_desk, gate.get_future().share());
  const auto refused = ask("GET", "/blobs/{hash}", {{"hash", std::string(64, 'a')}}, "").response;
  EXPECT_EQ(refused.status, 503);
  EXPECT_GT(refused.retry_after_seconds, 0);
  gate.set_value();
}

// A node that cannot fetch what a rank needs is taken for one that cannot start it.
TEST_F(BlobRoutes, NodesFetchWhoeverShipsFolders) {
  const std::string content = "content";
  const Arguments named{{"hash", sync::hash_bytes(as_bytes(content))}};
  EXPECT_EQ(put(content), 200);
  std::promise<void> gate;
  fill(desk, blob_desk, gate.get_future().share());
  EXPECT_EQ(ask("POST", "/blobs/missing", {}, "[]").response.status, 503) << "there is no room for this one";
  EXPECT_EQ(ask("GET", "/blobs/{hash}", named, "").response.body, content);
  gate.set_value();
}

// Secrets are set there, too, and folders shipped.
TEST_F(BlobRoutes, AnAuditLogThatCannotBeReadKeepsNobodyFromTheDesk) {
  std::promise<void> gate;
  fill(audit_desk, controller::audit_desk, gate.get_future().share());
  const auto refused = ask("GET", "/audit", {}, "").response;
  EXPECT_EQ(refused.status, 503);
  EXPECT_NE(refused.body.find("too many read the audit log"), std::string::npos) << refused.body;
  EXPECT_EQ(ask("POST", "/blobs/missing", {}, "[]").response.body, "[]\n");
  gate.set_value();
}

TEST_F(BlobRoutes, OneAddressLeavesRoomForOthersWhoShipFolders) {
  std::promise<void> gate;
  fill(desk, blob_desk, gate.get_future().share(), "10.0.0.9");
  const auto exchange = std::make_shared<BlobExchange>("[]");
  for (const Route& route : routes()) {
    if (route.path == "/blobs/missing") route.handle(Call(services, exchange, {}, by_root()));
  }
  gate.set_value();
  EXPECT_EQ(exchange->wait().response.body, "[]\n");
}

}  // namespace
}  // namespace tutti::controller
