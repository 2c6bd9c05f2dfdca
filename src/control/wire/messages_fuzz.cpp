#include <cstdint>

#include "base/check.hpp"
#include "control/wire/messages.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tutti;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  // What is accepted can be written, and what was written is read as the same. What people are to see of a
  // node may become longer by that than what may come (visible_line): it need not be read again.
  if (const auto message = wire::decode_agent_message(bytes)) {
    const std::string written = wire::encode(*message);
    const bool has_words =
        std::holds_alternative<cluster::Hello>(*message) || std::holds_alternative<wire::Heartbeat>(*message);
    const auto again = wire::decode_agent_message(written);
    TUTTI_CHECK(has_words || (again.ok() && wire::encode(*again) == written));
  }
  if (const auto message = wire::decode_controller_message(bytes)) {
    const std::string written = wire::encode(*message);
    const auto again = wire::decode_controller_message(written);
    TUTTI_CHECK(again.ok() && wire::encode(*again) == written);
  }
  return 0;
}
