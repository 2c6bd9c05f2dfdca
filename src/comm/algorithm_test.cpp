#include "comm/algorithm.hpp"

#include <gtest/gtest.h>

#include "comm/collectives.hpp"
#include "comm/pump.hpp"

namespace tutti::comm {
namespace {

TEST(Algorithm, SmallMessagesTakeFewMessagesAndLargeOnesFewBytes) {
  const Cost ethernet{.latency_s = 20e-6, .message_s = 5e-6, .bytes_per_s = 1e9};
  for (const std::size_t hosts : {2UL, 4UL, 8UL, 16UL}) {
    EXPECT_EQ(choose_all_reduce(ethernet, hosts, 64), AllReduce::doubling) << hosts;
    EXPECT_EQ(choose_all_reduce(ethernet, hosts, 64 << 20), AllReduce::slices) << hosts;
  }
  EXPECT_EQ(choose_broadcast(ethernet, 8, 64), Broadcast::star);
  EXPECT_EQ(choose_broadcast(ethernet, 8, 16 << 20), Broadcast::chain);
}

// The same bytes take another way on a network with another balance.
TEST(Algorithm, TheMeasuredNetworkDecides) {
  const Cost fast{.latency_s = 1e-6, .message_s = 1e-7, .bytes_per_s = 1e9};
  const Cost far{.latency_s = 10e-3, .message_s = 1e-3, .bytes_per_s = 1e9};
  EXPECT_EQ(choose_all_reduce(fast, 4, 100'000), AllReduce::slices);
  EXPECT_EQ(choose_all_reduce(far, 4, 100'000), AllReduce::doubling);
  EXPECT_EQ(choose_broadcast(fast, 4, 100'000), Broadcast::chain);
  EXPECT_EQ(choose_broadcast(far, 4, 100'000), Broadcast::star);
}

TEST(Layout, HostsAreOrderedByTheirFirstMember) {
  const Layout layout = Layout::of({"b", "a", "b", "a", "c"}, 3);
  EXPECT_EQ(layout.hosts, (std::vector<std::vector<int>>{{0, 2}, {1, 3}, {4}}));
  EXPECT_EQ(layout.my_host(), 1U);
  EXPECT_EQ(layout.local_rank(), 1);
  EXPECT_FALSE(layout.in_host_order());
  EXPECT_EQ(layout.by_host(), (std::vector<int>{0, 2, 1, 3, 4}));
  EXPECT_TRUE(Layout::of({"a", "a", "b"}, 0).in_host_order());
}

TEST(Stripes, CoverEveryByteOnce) {
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{1} << 20, (std::size_t{3} << 20) + 17}) {
    for (const std::size_t sockets : {1UL, 3UL, 4UL}) {
      Stripes stripes(bytes, sockets);
      std::vector<bool> seen(bytes, false);
      std::size_t turn = 0;
      while (!stripes.done()) {
        const std::size_t socket = turn++ % stripes.sockets();
        const auto run = stripes.next(socket);
        const std::size_t part = std::min<std::size_t>(run.bytes, 100'000 + socket * 1000);
        for (std::size_t i = run.at; i < run.at + part; ++i) {
          ASSERT_FALSE(seen[i]);
          seen[i] = true;
        }
        if (part > 0) stripes.advance(socket, part);
        for (std::size_t i = 0; i < stripes.prefix(); i += 4096) ASSERT_TRUE(seen[i]);
      }
      EXPECT_EQ(std::count(seen.begin(), seen.end(), true), static_cast<std::ptrdiff_t>(bytes));
    }
  }
}

}  // namespace
}  // namespace tutti::comm
