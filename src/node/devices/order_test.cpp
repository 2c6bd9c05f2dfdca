#include "node/devices/order.hpp"

#include <gtest/gtest.h>

namespace tutti::devices {
namespace {

using Devices = std::vector<cluster::Device>;

cluster::Device named(const std::string& uuid) { return {"H100", gib(80), uuid, -1, false}; }
cluster::Device nameless() { return {"unknown", Bytes(), "", -1, true}; }
cluster::Device silent(cluster::Device device) {
  device.silent = true;
  return device;
}

TEST(DeviceOrder, WhatStaysTheSameIsTheSame) {
  const Devices devices{named("GPU-a"), named("GPU-b")};
  EXPECT_EQ(keep_order(devices, devices), devices);
}

TEST(DeviceOrder, ASilentDeviceShiftsNoOther) {
  const Devices known{named("GPU-a"), named("GPU-b"), named("GPU-c")};
  const Devices one_silent{named("GPU-a"), silent(named("GPU-b")), named("GPU-c")};
  EXPECT_EQ(keep_order(known, {named("GPU-a"), nameless(), named("GPU-c")}), one_silent);
  EXPECT_EQ(keep_order(known, {named("GPU-a"), named("GPU-c")}), one_silent) << "gone from the bus";
  EXPECT_EQ(keep_order(one_silent, known), known) << "and back";
}

TEST(DeviceOrder, OneThatWasSilentFromTheStartIsNamedInItsPlace) {
  const Devices known{named("GPU-a"), nameless(), named("GPU-c")};
  EXPECT_EQ(keep_order(known, {named("GPU-a"), named("GPU-b"), named("GPU-c")}),
            (Devices{named("GPU-a"), named("GPU-b"), named("GPU-c")}));
}

TEST(DeviceOrder, ANewOneComesLast) {
  EXPECT_EQ(keep_order({named("GPU-b")}, {named("GPU-a"), named("GPU-b")}),
            (Devices{named("GPU-b"), named("GPU-a")}));
  EXPECT_EQ(keep_order({named("GPU-b")}, {nameless(), named("GPU-b")}),
            (Devices{named("GPU-b"), nameless()}));
}

}  // namespace
}  // namespace tutti::devices
