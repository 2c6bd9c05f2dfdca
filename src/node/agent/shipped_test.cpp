#include "node/agent/shipped.hpp"

#include <atomic>
#include <filesystem>
#include <future>

#include <gtest/gtest.h>

#include "net/http/server.hpp"

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
    shipped.prepare(std::string(64, 'a'), "1.0",
                    [&](Result<std::string> done) { told.set_value(std::move(done)); });
    const auto done = told.get_future().get();
    ASSERT_FALSE(done.ok());
    EXPECT_EQ(done.error().code(), ErrorCode::invalid) << done.error().text();
    EXPECT_EQ(asked, 3);
  }
  loop.stop();
  thread.join();
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace tutti::agent
