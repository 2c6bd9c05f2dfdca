#include "node/agent/shipped.hpp"

#include <sys/mount.h>

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/bytes.hpp"
#include "net/http/server.hpp"
#include "net/sync/chunks.hpp"
#include "net/sync/digest.hpp"
#include "net/sync/manifest.hpp"
#include "node/agent/health.hpp"

namespace tutti::agent {
namespace {

// A controller that answers so many questions with 503 before it knows anything.
TEST(Shipped, AControllerThatIsBusyIsAskedAgain) {
  char folder[] = "/tmp/tutti-shipped-XXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  net::Loop loop;
  std::atomic<int> asked{0};
  auto server = net::Server::listen(loop, {}, [&](const auto& exchange) {
    const int status = ++asked <= 2 ? 503 : 404;
    exchange->answer({.status = status, .body = "{}"});
  });
  ASSERT_TRUE(server.ok()) << server.error().text();
  std::thread thread([&] { loop.run(); });
  {
    Shipped shipped({"127.0.0.1", (*server)->port(), ""}, "token", folder);
    std::promise<Result<std::string>> told;
    shipped.prepare("ann", std::string(64, 'a'), "1.0",
                    [&](Result<std::string> done, keeper::Hindrance) { told.set_value(std::move(done)); });
    EXPECT_FALSE(told.get_future().get().ok());
    EXPECT_EQ(asked, 3);
  }
  loop.stop();
  thread.join();
  std::filesystem::remove_all(folder);
}

// Its disk may be away. The job waits for a person when no node gets it, and does not fail.
TEST(Shipped, WhatTheControllerDoesNotHaveIsNoFaultOfTheJobs) {
  char folder[] = "/tmp/tutti-shipped-XXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  net::Loop loop;
  auto server = net::Server::listen(
      loop, {}, [&](const auto& exchange) { exchange->answer({.status = 404, .body = "{}"}); });
  ASSERT_TRUE(server.ok()) << server.error().text();
  std::thread thread([&] { loop.run(); });
  {
    Shipped shipped({"127.0.0.1", (*server)->port(), ""}, "token", folder);
    std::promise<keeper::Hindrance> told;
    shipped.prepare("ann", std::string(64, 'a'), "1.0",
                    [&](const Result<std::string>& done, keeper::Hindrance why) {
                      EXPECT_TRUE(!done.ok() && done.error().code() != ErrorCode::invalid);
                      told.set_value(why);
                    });
    EXPECT_EQ(told.get_future().get(), keeper::Hindrance::job);
  }
  loop.stop();
  thread.join();
  std::filesystem::remove_all(folder);
}

TEST(Shipped, AControllerThatStaysBusyIsNoFaultOfTheNodes) {
  char folder[] = "/tmp/tutti-shipped-XXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  net::Loop loop;
  std::promise<void> asked;
  std::atomic<int> questions{0};
  auto server = net::Server::listen(loop, {}, [&](const auto& exchange) {
    exchange->answer({.status = 503, .body = "{}"});
    if (++questions == 2) asked.set_value();
  });
  ASSERT_TRUE(server.ok()) << server.error().text();
  std::thread thread([&] { loop.run(); });
  {
    Shipped shipped({"127.0.0.1", (*server)->port(), ""}, "token", folder);
    std::promise<keeper::Hindrance> told;
    shipped.prepare("ann", std::string(64, 'a'), "1.0",
                    [&](const Result<std::string>& done, keeper::Hindrance why) {
                      EXPECT_FALSE(done.ok());
                      told.set_value(why);
                    });
    asked.get_future().wait();
    // It would be asked for a minute.
    shipped.drop("1.0");
    EXPECT_EQ(told.get_future().get(), keeper::Hindrance::passing);
  }
  loop.stop();
  thread.join();
  std::filesystem::remove_all(folder);
}

TEST(Shipped, AnAgentsFolderThatWasRemovedIsNotMadeAgain) {
  char home[] = "/tmp/tutti-shipped-XXXXXX";
  ASSERT_NE(::mkdtemp(home), nullptr);
  {
    Shipped shipped({"127.0.0.1", 1, ""}, "token", home + std::string("/nodes/n1"));
    std::promise<keeper::Hindrance> told;
    shipped.prepare("ann", std::string(64, 'a'), "1.0",
                    [&](const Result<std::string>& done, keeper::Hindrance why) {
                      EXPECT_FALSE(done.ok());
                      told.set_value(why);
                    });
    EXPECT_EQ(told.get_future().get(), keeper::Hindrance::node);
  }
  EXPECT_TRUE(std::filesystem::is_empty(home));
  std::filesystem::remove_all(home);
}

// Nothing of it is asked for: what is not there could not be put anywhere.
TEST(Shipped, AFolderThatIsTooLargeForTheDiskIsNotFetched) {
  char folder[] = "/tmp/tutti-shipped-XXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  const Bytes large = gib(1);
  sync::Manifest manifest;
  sync::Entry file{
      .path = "large", .kind = sync::Entry::Kind::file, .chunks = {}, .link_target = "", .bytes = large};
  for (std::size_t chunk = 0; chunk < sync::chunk_count(large); ++chunk) {
    const std::string number = std::to_string(chunk);
    file.chunks.push_back(std::string(64 - number.size(), 'a') + number);
  }
  manifest.entries.push_back(file);
  const std::string encoded = sync::encode(manifest);
  const std::string hash = sync::hash_bytes(as_bytes(encoded));
  net::Loop loop;
  std::atomic<int> others{0};
  auto server = net::Server::listen(loop, {}, [&](const auto& exchange) {
    const bool asked = exchange->request().path.find(hash) != std::string::npos;
    if (!asked) ++others;
    exchange->answer({.status = asked ? 200 : 404, .body = asked ? encoded : "{}"});
  });
  ASSERT_TRUE(server.ok()) << server.error().text();
  std::thread thread([&] { loop.run(); });
  {
    Shipped shipped({"127.0.0.1", (*server)->port(), ""}, "token", folder, [](const std::string&) {
      return DiskRoom{mib(900), 1000};
    });
    std::promise<std::pair<Result<std::string>, keeper::Hindrance>> told;
    shipped.prepare("ann", hash, "1.0", [&](Result<std::string> done, keeper::Hindrance hindrance) {
      told.set_value({std::move(done), hindrance});
    });
    const auto [done, hindrance] = told.get_future().get();
    ASSERT_FALSE(done.ok());
    EXPECT_EQ(hindrance, keeper::Hindrance::job) << done.error().text();
    EXPECT_NE(done.error().text().find("whose disk has 900 MiB left"), std::string::npos)
        << done.error().text();
    EXPECT_EQ(others, 0);
  }
  loop.stop();
  thread.join();
  std::filesystem::remove_all(folder);
}

// Its controller has what was shipped, and answers for one content only when it is told to. The disk of its
// node has what the test says.
struct ShippedOnASmallDisk : testing::Test {
  void SetUp() override {
    ASSERT_NE(::mkdtemp(folder_), nullptr);
    auto server = net::Server::listen(loop_, {}, [this](const auto& exchange) {
      const std::string& path = exchange->request().path;
      const std::string hash = path.substr(path.rfind('/') + 1);
      const std::lock_guard lock(mutex_);
      if (hash != slow_) return exchange->answer({.status = 200, .body = contents_[hash]});
      held_ = exchange;
      arrived_.notify_all();
    });
    ASSERT_TRUE(server.ok()) << server.error().text();
    server_ = std::move(*server);
    thread_ = std::thread([this] { loop_.run(); });
    shipped_.emplace(net::Target{"127.0.0.1", server_->port(), ""}, "token", folder_,
                     [this](const std::string&) { return free_room(); });
  }
  void TearDown() override {
    shipped_.reset();
    loop_.post([this] { server_.reset(); });
    loop_.post([this] { loop_.stop(); });
    thread_.join();
    if (mounted_) ::umount2(folder_, MNT_DETACH);
    std::filesystem::remove_all(folder_);
  }

  // The hash of the manifest of a folder with these files.
  std::string ship(const std::vector<std::string>& files) {
    sync::Manifest manifest;
    const std::lock_guard lock(mutex_);
    for (const std::string& content : files) {
      const std::string hash = sync::hash_bytes(as_bytes(content));
      contents_[hash] = content;
      manifest.entries.push_back({.path = "file" + std::to_string(100'000 + manifest.entries.size()),
                                  .kind = sync::Entry::Kind::file,
                                  .chunks = {hash},
                                  .link_target = "",
                                  .bytes = Bytes(static_cast<std::int64_t>(content.size()))});
    }
    const std::string encoded = sync::encode(manifest);
    const std::string hash = sync::hash_bytes(as_bytes(encoded));
    contents_[hash] = encoded;
    return hash;
  }
  // "" if it was laid out; else why not, for whichever fault.
  std::future<std::string> prepare(const std::string& manifest, const std::string& name) {
    auto told = std::make_shared<std::promise<std::string>>();
    shipped_->prepare(
        "ann", manifest, name, [told](const Result<std::string>& done, keeper::Hindrance hindrance) {
          const std::string fault = hindrance == keeper::Hindrance::job ? "the job: " : "not the job: ";
          told->set_value(done ? "" : fault + done.error().text());
        });
    return told->get_future();
  }
  void wait_for_the_slow_one() {
    std::unique_lock lock(mutex_);
    arrived_.wait(lock, [&] { return held_ != nullptr; });
  }
  void answer_the_slow_one() {
    const std::lock_guard lock(mutex_);
    loop_.post([exchange = std::exchange(held_, nullptr), body = contents_[slow_]] {
      exchange->answer({.status = 200, .body = body});
    });
  }
  // Less what is in the cache and laid out now.
  DiskRoom free_room() {
    const std::lock_guard lock(mutex_);
    DiskRoom room{.bytes = free_bytes_min + bytes_,
                  .files = static_cast<std::int64_t>(free_files_min) + files_};
    std::error_code gone;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_, gone)) {
      if (!entry.is_regular_file(gone)) continue;
      room.bytes -= Bytes(static_cast<std::int64_t>(entry.file_size(gone)));
      --room.files;
    }
    return room;
  }

  char folder_[32] = "/tmp/tutti-shipped-XXXXXX";
  bool mounted_ = false;
  net::Loop loop_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::map<std::string, std::string> contents_;
  std::string slow_;
  std::shared_ptr<net::Exchange> held_;
  Bytes bytes_ = gib(1);
  std::int64_t files_ = 1000;
  std::unique_ptr<net::Server> server_;
  std::thread thread_;
  std::optional<Shipped> shipped_;
};

TEST_F(ShippedOnASmallDisk, SmallFilesCountAsWhatTheyTake) {
  std::vector<std::string> letters;
  for (char letter = 'a'; letter <= 'z'; ++letter) letters.emplace_back(1, letter);
  const std::string folder = ship(letters);
  bytes_ = kib(64);
  EXPECT_TRUE(prepare(folder, "1.0").get().starts_with("the job: the folder that the job ships takes"));
  bytes_ = mib(64);
  files_ = 40;
  EXPECT_TRUE(prepare(folder, "1.0").get().starts_with("the job: the folder that the job ships takes"));
  files_ = 60;
  EXPECT_EQ(prepare(folder, "1.0").get(), "");
}

// Each takes four files: its manifest, the folder, what is in it, and that in the cache.
TEST_F(ShippedOnASmallDisk, FoldersThatFitOneByOneDoNotFillItTogether) {
  const std::string first = ship({"one"});
  const std::string second = ship({"two"});
  slow_ = sync::hash_bytes(as_bytes("one"));
  files_ = 5;
  auto slow = prepare(first, "1.0");
  wait_for_the_slow_one();
  auto next = prepare(second, "2.0");
  EXPECT_NE(next.wait_for(10ms), std::future_status::ready);
  answer_the_slow_one();
  EXPECT_EQ(slow.get(), "");
  EXPECT_EQ(next.get(), "") << "it waited for the other, which needs its part of the cache no more";
  EXPECT_GE(free_room().files, static_cast<std::int64_t>(free_files_min));
}

TEST_F(ShippedOnASmallDisk, WhatOthersLeftInTheCacheMakesWay) {
  bytes_ = mib(5);
  EXPECT_EQ(prepare(ship({std::string(2 << 20, 'a')}), "1.0").get(), "");
  std::filesystem::remove_all(shipped_->path_of("1.0"));
  EXPECT_EQ(prepare(ship({std::string(2 << 20, 'b')}), "2.0").get(), "");
}

// The room is gone though it was counted, as when a rank takes it meanwhile.
TEST_F(ShippedOnASmallDisk, ThatIsFullAllTheSameIsNoFaultOfTheNodes) {
  if (::mount("none", folder_, "tmpfs", 0, "size=1m") != 0)
    GTEST_SKIP() << "this process may not mount a disk";
  mounted_ = true;
  const std::string done = prepare(ship({std::string(700 << 10, 'a')}), "1.0").get();
  EXPECT_TRUE(done.starts_with("the job: ") && done.ends_with("No space left on device")) << done;
  EXPECT_GT(free_room_in(folder_).bytes, kib(900)) << "what was fetched for it is gone, too";
}

// So many files that they take far longer to lay out than it takes to see that the first is begun.
TEST_F(ShippedOnASmallDisk, WhatIsBeingLaidOutAndNobodyWantsAnyMoreIsLeftOff) {
  files_ = 100'000;
  auto many = prepare(ship(std::vector<std::string>(20'000, "the same")), "1.0");
  const std::string partial = shipped_->path_of("1.0") + ".partial";
  while (!std::filesystem::exists(partial) && many.wait_for(0s) != std::future_status::ready)
    std::this_thread::yield();
  shipped_->drop("1.0");
  const std::string told = many.get();
  EXPECT_TRUE(told.ends_with("nobody wants it any more")) << told;
  EXPECT_FALSE(std::filesystem::exists(partial));
  EXPECT_FALSE(std::filesystem::exists(shipped_->path_of("1.0")));
  EXPECT_EQ(prepare(ship({"the same"}), "2.0").get(), "") << "the place goes to the next one";
}

// Its controller answers for one file only when it is told to, and has none of the others.
struct SlowShipped : testing::Test {
  void SetUp() override {
    ASSERT_NE(::mkdtemp(folder_), nullptr);
    auto server = net::Server::listen(loop_, {}, [this](const auto& exchange) {
      const std::lock_guard lock(mutex_);
      if (over_ || exchange->request().path.find(slow_) == std::string::npos)
        return exchange->answer({.status = 404, .body = "{}"});
      held_.push_back(exchange);
      arrived_.notify_all();
    });
    ASSERT_TRUE(server.ok()) << server.error().text();
    server_ = std::move(*server);
    thread_ = std::thread([this] { loop_.run(); });
    shipped_.emplace(net::Target{"127.0.0.1", server_->port(), ""}, "token", folder_);
  }
  void TearDown() override {
    loop_.post([this] { over_ = true; });
    answer();
    shipped_.reset();
    loop_.post([this] { server_.reset(); });
    loop_.post([this] { loop_.stop(); });
    thread_.join();
    std::filesystem::remove_all(folder_);
  }

  void wait_for_requests(std::size_t count) {
    std::unique_lock lock(mutex_);
    arrived_.wait(lock, [&] { return held_.size() >= count; });
  }
  void answer() {
    loop_.post([this] {
      const std::lock_guard lock(mutex_);
      for (const auto& exchange : std::exchange(held_, {})) exchange->answer({.status = 404, .body = "{}"});
    });
  }
  std::future<Result<std::string>> prepare(const std::string& manifest, const std::string& name,
                                           const std::string& user = "ann") {
    auto told = std::make_shared<std::promise<Result<std::string>>>();
    shipped_->prepare(user, manifest, name, [told](Result<std::string> done, keeper::Hindrance) {
      told->set_value(std::move(done));
    });
    return told->get_future();
  }

  const std::string slow_ = std::string(64, 'a');
  const std::string quick_ = std::string(64, 'b');
  char folder_[32] = "/tmp/tutti-shipped-XXXXXX";
  net::Loop loop_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<std::shared_ptr<net::Exchange>> held_;
  bool over_ = false;  // the loop's
  std::unique_ptr<net::Server> server_;
  std::thread thread_;
  std::optional<Shipped> shipped_;
};

TEST_F(SlowShipped, OneSlowFolderDoesNotHoldUpTheOthers) {
  auto slow = prepare(slow_, "1.0");
  wait_for_requests(1);
  auto quick = prepare(quick_, "2.0");
  EXPECT_FALSE(quick.get().ok()) << "it is answered, while the other one waits";
  EXPECT_NE(slow.wait_for(0s), std::future_status::ready);
}

TEST_F(SlowShipped, NobodyHoldsUpAllOthersWithManyFolders) {
  std::vector<std::future<Result<std::string>>> many;
  for (std::size_t at = 0; at < 2 * shipped_threads_max; ++at)
    many.push_back(prepare(slow_, "1." + std::to_string(at), "ann"));
  wait_for_requests(shipped_threads_max - 1);
  EXPECT_EQ(prepare(quick_, "2.0", "bob").wait_for(20s), std::future_status::ready)
      << "it is answered, while the others wait";
}

TEST_F(SlowShipped, UsersTakeTurns) {
  std::vector<std::future<Result<std::string>>> many;
  for (const std::string user : {"ann", "bob"}) {
    for (std::size_t at = 0; at < 2 * shipped_threads_max; ++at)
      many.push_back(prepare(slow_, user + std::to_string(at), user));
  }
  wait_for_requests(shipped_threads_max);
  auto next = prepare(quick_, "2.0", "carl");
  EXPECT_NE(next.wait_for(0s), std::future_status::ready);
  answer();
  EXPECT_EQ(next.wait_for(20s), std::future_status::ready)
      << "it is answered, though all of the others came before it";
}

TEST_F(SlowShipped, WhatNobodyWantsAnyMoreLeavesTheLine) {
  std::vector<std::future<Result<std::string>>> slow;
  for (std::size_t at = 0; at < shipped_threads_max; ++at)
    slow.push_back(prepare(slow_, "1." + std::to_string(at), at == 0 ? "bob" : "ann"));
  wait_for_requests(shipped_threads_max);
  auto waiting = prepare(quick_, "2.0");
  shipped_->drop("2.0");
  EXPECT_EQ(waiting.get().error().text(), "nobody wants it any more");
  shipped_->drop("1.0");
  auto next = prepare(quick_, "3.0");
  EXPECT_NE(next.wait_for(0s), std::future_status::ready);
  answer();
  EXPECT_FALSE(next.get().ok());
}

TEST_F(SlowShipped, TwoOfOneNameAreNotInEachOthersWay) {
  auto first = prepare(slow_, "1.0");
  wait_for_requests(1);
  shipped_->drop("1.0");
  auto second = prepare(quick_, "1.0");
  EXPECT_NE(second.wait_for(10ms), std::future_status::ready) << "the first may still write to the folder";
  answer();
  EXPECT_FALSE(first.get().ok());
  EXPECT_FALSE(second.get().ok());
}

}  // namespace
}  // namespace tutti::agent
