#include "net/http/pace.hpp"

#include <algorithm>
#include <functional>

#include <gtest/gtest.h>

// g++ 12 sees how a coroutine's frame is allocated, but not how it is released, and takes that for a
// mismatch.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

namespace tutti::net {
namespace {

constexpr std::size_t many = 100;
constexpr std::size_t a_few = 4;

asio::awaitable<void> begin_one(std::shared_ptr<Pace> pace, std::size_t& begun) {
  co_await pace->turn();
  ++begun;
}

TEST(Pace, EverybodyElseHasATurnBetweenTwoHandfuls) {
  asio::io_context context{1};
  const auto pace = std::make_shared<Pace>(context, a_few);
  std::size_t begun = 0;
  for (std::size_t writer = 0; writer < many; ++writer)
    asio::co_spawn(context, begin_one(pace, begun), asio::detached);
  std::size_t seen = 0;
  std::size_t most = 0;
  const std::function<void()> neighbour = [&] {
    most = std::max(most, begun - std::exchange(seen, begun));
    if (begun < many) asio::post(context, neighbour);
  };
  asio::post(context, neighbour);
  context.run();
  EXPECT_EQ(begun, many);
  EXPECT_LE(most, a_few);
}

}  // namespace
}  // namespace tutti::net
