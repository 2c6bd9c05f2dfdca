#include <cstdint>

#include "control/wire/messages.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  // What is accepted can be written again.
  if (auto message = tutti::wire::decode_agent_message(bytes))
    static_cast<void>(tutti::wire::encode(*message));
  if (auto message = tutti::wire::decode_controller_message(bytes))
    static_cast<void>(tutti::wire::encode(*message));
  return 0;
}
