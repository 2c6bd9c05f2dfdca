#include "net/http/neighbourhood.hpp"

#include <gtest/gtest.h>

namespace tutti::net {
namespace {

TEST(Neighbourhood, AddressesOfOneNetworkOfIpv6CountAsOne) {
  EXPECT_EQ(neighbourhood("2001:db8:1:2::1"), neighbourhood("2001:db8:1:2:ffff:ffff:ffff:ffff"));
  EXPECT_NE(neighbourhood("2001:db8:1:2::1"), neighbourhood("2001:db8:1:3::1"));
  EXPECT_EQ(neighbourhood("2001:db8:1:2::1"), "2001:db8:1:2::/64");
}

TEST(Neighbourhood, OthersCountByThemselves) {
  EXPECT_EQ(neighbourhood("10.0.0.1"), "10.0.0.1");
  EXPECT_EQ(neighbourhood("::ffff:10.0.0.1"), "10.0.0.1");
  EXPECT_EQ(neighbourhood("::1"), "::1");
  EXPECT_NE(neighbourhood("fe80::1"), neighbourhood("fe80::2"));
  EXPECT_EQ(neighbourhood("no address"), "no address");
}

}  // namespace
}  // namespace tutti::net
