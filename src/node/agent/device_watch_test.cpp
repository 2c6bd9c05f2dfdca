#include "node/agent/device_watch.hpp"

#include <stdexcept>

#include <gtest/gtest.h>

#include "node/agent/no_threads_test.hpp"

namespace tutti::agent {
namespace {

constexpr DevicePace quick{.every = 1ms, .again = 1ms};

TEST(DeviceWatch, ADriverThatThrowsEndsNobodyAndIsAskedAgain) {
  net::Loop loop;
  int looks = 0;
  std::vector<cluster::Device> seen;
  const DeviceWatch watch(
      loop,
      [&looks]() -> std::vector<cluster::Device> {
        if (++looks == 1) throw std::runtime_error("the driver is not well");
        return {{"H100", gib(80), "GPU-1", -1, false}};
      },
      [&](const std::vector<cluster::Device>& devices) {
        seen = devices;
        loop.stop();
      },
      quick);
  loop.run();
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen.front().uuid, "GPU-1");
}

TEST(DeviceWatch, WithoutAThreadAnAgentGoesOn) {
  net::Loop loop;
  const NoThreads none;
  DeviceWatch watch(
      loop, [] { return std::vector<cluster::Device>(); }, [](const auto&) {}, quick);
  watch.look_soon();
}

}  // namespace
}  // namespace tutti::agent
