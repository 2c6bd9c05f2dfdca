// NVIDIA's devices, asked from the driver's own library, which is opened at run time: a server without it has
// none. Asked when an agent starts, and then now and again. Any thread, one at a time.
#pragma once

#include <string>
#include <string_view>

#include "node/devices/devices.hpp"

namespace tutti::devices {

constexpr unsigned int nvml_devices_max = 64;

// Never fails: a driver that does not answer, or one of several devices that does not, is a warning. Fills in
// the devices alone; their order is the driver's, by PCI bus id, and one that does not answer keeps its
// place.
Found find_nvml(const std::string& library = "libnvidia-ml.so.1");

// "NVIDIA H200" -> "H200", "Tesla V100-SXM2-32GB" -> "V100-SXM2-32GB", blanks become '-'.
std::string short_model(std::string_view name);

}  // namespace tutti::devices
