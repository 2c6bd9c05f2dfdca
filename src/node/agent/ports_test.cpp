#include "node/agent/ports.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <set>
#include <thread>

#include <gtest/gtest.h>

namespace tutti::agent {
namespace {

const cluster::JobId job(7);

// As a rank does it; -1 if the port is in use.
int listen_at(std::int32_t port) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in local{};
  local.sin_family = AF_INET;
  local.sin_port = htons(static_cast<std::uint16_t>(port));
  local.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::bind(socket, reinterpret_cast<const sockaddr*>(&local), sizeof local) == 0 &&
      ::listen(socket, 1) == 0)
    return socket;
  ::close(socket);
  return -1;
}

bool is_free(std::int32_t port) {
  const int socket = listen_at(port);
  if (socket >= 0) ::close(socket);
  return socket >= 0;
}

TEST(Ports, WhatIsKeptIsNobodyElses) {
  Ports first;
  Ports second;
  const auto ours = first.free();
  const auto theirs = second.free();
  ASSERT_EQ(ours.size(), gang_ports_kept);
  ASSERT_EQ(theirs.size(), gang_ports_kept);
  std::set<std::int32_t> all(ours.begin(), ours.end());
  all.insert(theirs.begin(), theirs.end());
  EXPECT_EQ(all.size(), 2 * gang_ports_kept);
  EXPECT_FALSE(is_free(ours.front())) << "no other program gets it";
}

TEST(Ports, ATakenOneIsFreeForItsGangAndReplaced) {
  Ports ports;
  const std::int32_t port = ports.free().front();
  ASSERT_TRUE(ports.take(job, 0, port).ok());
  EXPECT_TRUE(is_free(port));
  const auto kept = ports.free();
  EXPECT_EQ(kept.size(), gang_ports_kept);
  EXPECT_EQ(std::count(kept.begin(), kept.end(), port), 0);
}

// Between the release of a port and the moment when the gang listens there, nobody is to hand it out.
TEST(Ports, ATakenOneIsHandedOutByNoAgentBeforeItsGangHasEnded) {
  Ports first;
  Ports second;
  const std::int32_t port = first.free().front();
  ASSERT_TRUE(first.take(job, 0, port).ok());
  EXPECT_FALSE(second.take(cluster::JobId(1), 0, port).ok());
  first.give_back(job, 0);
  EXPECT_TRUE(second.take(cluster::JobId(1), 0, port).ok());
}

TEST(Ports, OneThatAProgramUsesIsRefused) {
  Ports ports;
  Ports other;
  const std::int32_t port = other.free().front();
  ASSERT_TRUE(other.take(job, 0, port).ok());
  other.give_back(job, 0);
  const int program = listen_at(port);
  ASSERT_GE(program, 0);
  const auto refused = ports.take(job, 0, port);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().text().find("port " + std::to_string(port) + " is not free"), std::string::npos);
  ::close(program);
  EXPECT_TRUE(ports.take(job, 0, port).ok());
}

TEST(Ports, AGangThatIsWhollyHereGetsAnotherWhereItsOwnIsInUse) {
  Ports ports;
  Ports other;
  const std::int32_t port = other.free().front();
  const auto kept = ports.free();
  const auto chosen = ports.take(job, 0, port, true);
  ASSERT_TRUE(chosen.ok()) << chosen.error().text();
  EXPECT_NE(*chosen, port);
  EXPECT_TRUE(is_free(*chosen));
  EXPECT_EQ(std::count(kept.begin(), kept.end(), *chosen), 0) << "the controller gives those to others";
}

// A program may bind to all ports of the range.
TEST(Ports, WhereTheWholeRangeIsInUseTheSystemGivesOthers) {
  Ports first;
  const PortRange full{first.free().front(), 1};
  Ports ports(full);
  const auto kept = ports.free();
  EXPECT_EQ(kept.size(), gang_ports_kept);
  EXPECT_EQ(std::count(kept.begin(), kept.end(), full.first), 0);
  for (std::int32_t gang = 1; gang <= 40; ++gang) {
    const auto taken = ports.take(cluster::JobId(static_cast<std::uint64_t>(gang)), 0, full.first, true);
    ASSERT_TRUE(taken.ok()) << taken.error().text();
  }
  EXPECT_EQ(ports.free().size(), gang_ports_kept);
}

// Who takes all of the range would take the gang's port as well, in the moment between its release and its
// use.
TEST(Ports, WhereTheRangeIsTakenAGangGetsNoneOfIt) {
  for (int round = 0; round < 100; ++round) {
    PortRange one{0, 1};
    {
      const Ports before;
      one.first = before.free().front();
    }
    Ports ports(one);
    const auto kept = ports.free();
    // Between the two somebody else of this machine may have taken it.
    if (std::count(kept.begin(), kept.end(), one.first) == 0) continue;
    const auto chosen = ports.take(job, 0, one.first, true);
    ASSERT_TRUE(chosen.ok()) << chosen.error().text();
    EXPECT_NE(*chosen, one.first);
    return;
  }
  FAIL() << "no port of the range was free twice";
}

// A thread that has a network of its own, in which the system has few ports to give; "" if there was one.
template <class Test>
std::string with_few_ports(const std::string& first_and_last, const Test& test) {
  std::string hindrance;
  std::thread([&] {
    if (::unshare(CLONE_NEWNET) != 0) {
      hindrance = "this process may not have a network of its own";
      return;
    }
    std::ofstream("/proc/sys/net/ipv4/ip_local_port_range") << first_and_last << std::flush;
    std::ifstream range("/proc/sys/net/ipv4/ip_local_port_range");
    std::int32_t first = 0;
    std::int32_t last = 0;
    range >> first >> last;
    if (std::to_string(first) + " " + std::to_string(last) != first_and_last) {
      hindrance = "the system's ports are not for this process to choose";
      return;
    }
    test();
  }).join();
  return hindrance;
}

// Until the gang has bound to its port the system may give it to the next who asks.
TEST(Ports, WhatTheSystemGivesOutTwiceGoesToOneGangOnly) {
  const std::string hindrance = with_few_ports("30000 30079", [] {
    Ports first;
    Ports ports(PortRange{first.free().front(), 1});
    EXPECT_EQ(ports.free().size(), gang_ports_kept);
    std::set<std::int32_t> given;
    for (std::int32_t gang = 1; gang <= 40; ++gang) {
      const auto taken = ports.take(cluster::JobId(static_cast<std::uint64_t>(gang)), 0, gang_port_min, true);
      ASSERT_TRUE(taken.ok()) << taken.error().text();
      EXPECT_TRUE(given.insert(*taken).second) << *taken << " has a gang";
    }
    EXPECT_EQ(ports.free().size(), gang_ports_kept);
  });
  if (!hindrance.empty()) GTEST_SKIP() << hindrance;
}

// Names are anybody's: whoever has bound to all of them keeps no gang from starting.
TEST(Ports, WhereAllNamesAreTakenGangsStillGetPortsOfTheirOwn) {
  const std::string hindrance = with_few_ports("30000 30079", [] {
    std::vector<files::FileDescriptor> names;
    for (std::int32_t port = 30'000; port < 30'080; ++port) {
      names.emplace_back(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
      sockaddr_un name{};
      name.sun_family = AF_UNIX;
      const std::string text = "tutti-port-" + std::to_string(port);
      std::copy(text.begin(), text.end(), name.sun_path + 1);
      const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
      ASSERT_EQ(::bind(names.back().get(), reinterpret_cast<const sockaddr*>(&name), length), 0);
    }
    Ports ports(PortRange{30'000, 80});
    EXPECT_EQ(ports.free().size(), gang_ports_kept);
    std::set<std::int32_t> given;
    for (std::int32_t gang = 1; gang <= 40; ++gang) {
      const auto taken = ports.take(cluster::JobId(static_cast<std::uint64_t>(gang)), 0, gang_port_min, true);
      ASSERT_TRUE(taken.ok()) << taken.error().text();
      EXPECT_TRUE(given.insert(*taken).second) << *taken << " has a gang";
    }
  });
  if (!hindrance.empty()) GTEST_SKIP() << hindrance;
}

}  // namespace
}  // namespace tutti::agent
