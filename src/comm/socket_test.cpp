#include "comm/socket.hpp"

#include <gtest/gtest.h>

namespace tutti::comm {
namespace {

using Addresses = std::vector<std::string>;

TEST(Addresses, WhoMeetsAtAPrivateAddressWaitsAtNoPublicOne) {
  const Addresses own{"10.0.0.5",   "172.31.0.1",  "172.32.0.1", "192.168.1.1",
                      "100.64.0.1", "203.0.113.9", "fd00::5",    "2001:db8::5"};
  const Addresses inside{"10.0.0.5", "172.31.0.1", "192.168.1.1", "100.64.0.1", "fd00::5"};
  EXPECT_EQ(addresses_beside("10.0.0.5", own), inside);
  EXPECT_EQ(addresses_beside("fd00::5", own), inside);
  EXPECT_EQ(addresses_beside("203.0.113.9", own), own);
  // A host that finds itself by a name of its own.
  EXPECT_EQ(addresses_beside("127.0.1.1", own), own);
}

TEST(Addresses, OfASocketAreTold) {
  auto listener = listen_on(*Endpoint::of("127.0.0.1", 0));
  ASSERT_TRUE(listener.ok());
  auto socket =
      dial(*Endpoint::of("127.0.0.1", *port_of(*listener)), Clock::now() + std::chrono::seconds(60));
  ASSERT_TRUE(socket.ok());
  EXPECT_EQ(*local_address(*socket), "127.0.0.1");
}

}  // namespace
}  // namespace tutti::comm
