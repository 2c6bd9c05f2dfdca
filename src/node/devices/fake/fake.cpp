#include "node/devices/fake/fake.hpp"

#include <algorithm>
#include <charconv>
#include <string>

namespace tutti::devices {
namespace {

constexpr std::size_t model_bytes_max = 64;
constexpr Bytes unknown_model_memory = gib(16);

struct Model {
  std::string_view name;
  Bytes memory;
};

constexpr Model models[] = {{"H100", gib(80)}, {"H200", gib(141)}, {"B200", gib(180)}, {"A100", gib(80)},
                            {"V100", gib(32)}, {"L4", gib(24)},    {"T4", gib(16)},    {"A10G", gib(24)}};

Bytes memory_of(std::string_view model) {
  for (const auto& known : models)
    if (known.name == model) return known.memory;
  return unknown_model_memory;
}

bool is_model_name(std::string_view name) {
  const auto allowed = [](char letter) {
    return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
           (letter >= '0' && letter <= '9') || letter == '-' || letter == '_' || letter == '.';
  };
  return !name.empty() && name.size() <= model_bytes_max && std::all_of(name.begin(), name.end(), allowed);
}

Error refused(std::string_view spec, const std::string& why) {
  return invalid("'" + std::string(spec) + "' does not describe devices: " + why)
      .remedy("write a count and a model, such as 8xH100");
}

}  // namespace

Result<cluster::Inventory> fake_inventory(std::string_view spec) {
  if (spec.empty() || spec == "0") return cluster::Inventory();
  std::int32_t count = 0;
  const char* const end = spec.data() + spec.size();
  const auto [rest, error] = std::from_chars(spec.data(), end, count);
  if (error == std::errc::result_out_of_range ||
      (error == std::errc() && (count < 0 || count > fake_devices_max)))
    return refused(spec, "a node has 0 to " + std::to_string(fake_devices_max) + " devices");
  if (error != std::errc() || rest == end || *rest != 'x')
    return refused(spec, "the count comes first, then 'x'");
  const std::string model(rest + 1, end);
  if (!is_model_name(model)) return refused(spec, "a model is a word of letters, digits, '-', '_' and '.'");
  cluster::Inventory inventory;
  for (std::int32_t index = 0; index < count; ++index) {
    cluster::Device device;
    device.model = model;
    device.memory = memory_of(model);
    device.uuid = std::string(cluster::fake_uuid_prefix) + std::to_string(index);
    inventory.devices.push_back(std::move(device));
  }
  return inventory;
}

}  // namespace tutti::devices
