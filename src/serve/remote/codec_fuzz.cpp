// Any bytes as each message between tutti and its worker: read or refused.
#include <cstdint>

#include "serve/remote/codec.hpp"
#include "serve/remote/tensor_codec.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tutti::serve::remote;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  static_cast<void>(decode_ready(bytes).ok());
  static_cast<void>(decode_step(bytes).ok());
  static_cast<void>(decode_choices(bytes).ok());
  static_cast<void>(decode_chosen(bytes).ok());
  static_cast<void>(decode_logits(bytes).ok());
  static_cast<void>(decode_row(bytes).ok());
  static_cast<void>(decode_error(bytes).text());
  static_cast<void>(decode_card(bytes).ok());
  static_cast<void>(decode_tensors(bytes).ok());
  return 0;
}
