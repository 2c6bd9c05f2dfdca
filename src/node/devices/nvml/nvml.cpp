#include "node/devices/nvml/nvml.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "node/devices/host/host.hpp"
#include "node/devices/host/library.hpp"

namespace tutti::devices {
namespace {

// The few declarations of nvml.h that are used here; their layout is part of the library's stable interface.
using NvmlReturn = int;
using NvmlDevice = struct NvmlDeviceTag*;
constexpr NvmlReturn nvml_success = 0;
constexpr std::size_t nvml_text_bytes = 96;

struct NvmlMemory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};

struct NvmlPci {
  char bus_id_legacy[16];
  unsigned int domain;
  unsigned int bus;
  unsigned int device;
  unsigned int pci_device_id;
  unsigned int pci_subsystem_id;
  char bus_id[32];
};

struct Nvml {
  NvmlReturn (*init)() = nullptr;
  NvmlReturn (*shutdown)() = nullptr;
  const char* (*error_text)(NvmlReturn) = nullptr;
  NvmlReturn (*device_count)(unsigned int*) = nullptr;
  NvmlReturn (*device_by_index)(unsigned int, NvmlDevice*) = nullptr;
  NvmlReturn (*device_name)(NvmlDevice, char*, unsigned int) = nullptr;
  NvmlReturn (*device_memory)(NvmlDevice, NvmlMemory*) = nullptr;
  NvmlReturn (*device_uuid)(NvmlDevice, char*, unsigned int) = nullptr;
  NvmlReturn (*device_pci)(NvmlDevice, NvmlPci*) = nullptr;

  bool load(const Library& library) {
    return library.load(init, "nvmlInit_v2") && library.load(shutdown, "nvmlShutdown") &&
           library.load(error_text, "nvmlErrorString") &&
           library.load(device_count, "nvmlDeviceGetCount_v2") &&
           library.load(device_by_index, "nvmlDeviceGetHandleByIndex_v2") &&
           library.load(device_name, "nvmlDeviceGetName") &&
           library.load(device_memory, "nvmlDeviceGetMemoryInfo") &&
           library.load(device_uuid, "nvmlDeviceGetUUID") &&
           library.load(device_pci, "nvmlDeviceGetPciInfo_v3");
  }

  std::string text_of(NvmlReturn error) const {
    const char* text = error_text(error);
    return text == nullptr ? "error " + std::to_string(error) : text;
  }
};

template <std::size_t size>
std::string text_in(const std::array<char, size>& buffer) {
  return {buffer.data(), strnlen(buffer.data(), buffer.size())};
}

Result<cluster::Device> ask_device(const Nvml& nvml, unsigned int index) {
  NvmlDevice handle = nullptr;
  std::array<char, nvml_text_bytes> name{};
  std::array<char, nvml_text_bytes> uuid{};
  NvmlMemory memory{};
  NvmlReturn answer = nvml.device_by_index(index, &handle);
  if (answer == nvml_success) answer = nvml.device_name(handle, name.data(), nvml_text_bytes);
  if (answer == nvml_success) answer = nvml.device_memory(handle, &memory);
  if (answer == nvml_success) answer = nvml.device_uuid(handle, uuid.data(), nvml_text_bytes);
  if (answer != nvml_success)
    return failed("device " + std::to_string(index) + " does not answer: " + nvml.text_of(answer));
  NvmlPci pci{};
  const bool located = nvml.device_pci(handle, &pci) == nvml_success;
  cluster::Device device;
  device.model = short_model(text_in(name));
  device.memory = Bytes(static_cast<std::int64_t>(memory.total));
  device.uuid = text_in(uuid);
  if (located) device.numa = numa_of_pci({pci.bus_id, strnlen(pci.bus_id, sizeof pci.bus_id)});
  return device;
}

cluster::Device silent_device() {
  cluster::Device device;
  device.model = "unknown";
  device.silent = true;
  return device;
}

void ask_devices(const Nvml& nvml, Found& found) {
  unsigned int count = 0;
  if (const NvmlReturn answer = nvml.device_count(&count); answer != nvml_success) {
    found.warnings.push_back("the NVIDIA driver does not count its devices: " + nvml.text_of(answer));
    return;
  }
  for (unsigned int index = 0; index < std::min(count, nvml_devices_max); ++index) {
    auto device = ask_device(nvml, index);
    if (!device) found.warnings.push_back(device.error().text());
    // It keeps its place, so that those after it keep theirs.
    found.inventory.devices.push_back(device ? *std::move(device) : silent_device());
  }
}

}  // namespace

Found find_nvml(const std::string& library_name) {
  const Library library(library_name);
  if (!library.found()) return {.inventory = {}, .source = "none", .warnings = {}};
  Found found{.inventory = {}, .source = "nvml", .warnings = {}};
  Nvml nvml;
  if (!nvml.load(library)) {
    found.warnings.push_back(library_name + " is too old: a driver of version 455 or later is needed");
    return found;
  }
  if (const NvmlReturn answer = nvml.init(); answer != nvml_success) {
    found.warnings.push_back("the NVIDIA driver does not answer: " + nvml.text_of(answer));
    return found;
  }
  ask_devices(nvml, found);
  nvml.shutdown();
  return found;
}

std::string short_model(std::string_view name) {
  for (const std::string_view maker : {"NVIDIA ", "Tesla "})
    if (name.starts_with(maker)) name.remove_prefix(maker.size());
  std::string model(name);
  std::replace(model.begin(), model.end(), ' ', '-');
  return model;
}

}  // namespace tutti::devices
