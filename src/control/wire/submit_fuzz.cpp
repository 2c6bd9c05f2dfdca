#include <cstdint>

#include "control/wire/replies.hpp"
#include "control/wire/requests.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (auto submit = tutti::wire::decode_submit(bytes)) static_cast<void>(tutti::wire::encode_submit(*submit));
  static_cast<void>(tutti::wire::decode_error(400, bytes));
  static_cast<void>(tutti::wire::decode_drain(bytes));
  static_cast<void>(tutti::wire::decode_fabric(bytes));
  return 0;
}
