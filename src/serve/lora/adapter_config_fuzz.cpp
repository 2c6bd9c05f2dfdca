// An adapter_config.json that comes from anywhere: what is taken is within its bounds.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.hpp"
#include "serve/lora/adapter_config.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace lora = tutti::serve::lora;
  const auto config = lora::parse_adapter_config({reinterpret_cast<const char*>(data), size});
  if (!config) return 0;
  TUTTI_CHECK(config->rank >= 1 && config->rank <= lora::rank_max);
  TUTTI_CHECK(std::isfinite(config->scale) && config->scale > 0);
  for (const auto& target : config->targets) TUTTI_CHECK(!target.empty());
  return 0;
}
