// Devices that do not exist, for tests and demonstrations on a machine without any. Pure functions: any
// thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.hpp"
#include "node/devices/devices.hpp"

namespace tutti::devices {

constexpr std::int32_t fake_devices_max = 64;

// "8xH100": that many devices of a model, with the memory of that model, or 16 GiB if it is not a known one.
// "" and "0" mean a node without devices. CPUs and memory of the node stay 0, for the host to fill in.
Result<cluster::Inventory> fake_inventory(std::string_view spec);

}  // namespace tutti::devices
