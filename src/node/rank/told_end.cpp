#include "node/rank/told_end.hpp"

#include <charconv>
#include <string>

#include "node/rank/process.hpp"

namespace tutti::rank {

void tell_end(std::int32_t exit_code) {
  set_process_name(std::string(ended_shim_name) + std::to_string(exit_code & 0xFF));
}

std::optional<std::int32_t> told_end(const ShimProcess& shim) {
  const std::string name = process_name(shim.pid);
  if (!name.starts_with(ended_shim_name) || !is_alive(shim)) return std::nullopt;
  std::int32_t code = 0;
  const char* const last = name.data() + name.size();
  const auto [end, error] = std::from_chars(name.data() + ended_shim_name.size(), last, code);
  if (error != std::errc() || end != last) return std::nullopt;
  return code;
}

}  // namespace tutti::rank
