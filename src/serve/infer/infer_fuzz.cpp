// Any bytes as a request of the Open Inference Protocol: read or refused. The first two bytes say how much of
// it is JSON.
#include <cstdint>

#include "serve/infer/answer.hpp"
#include "serve/infer/ask.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tutti::serve;
  static const Signature signature{
      .inputs = {{"x", DataType::fp32, Dimensions{any_size, 2}}, {"m", std::nullopt, std::nullopt}},
      .outputs = {}};
  if (size < 2) return 0;
  const std::string length = std::to_string(data[0] * 256 + data[1]);
  const std::string_view body(reinterpret_cast<const char*>(data + 2), size - 2);
  for (const std::string& header : {std::string(), length}) {
    const auto ask = infer::read_ask(body, header, signature);
    if (ask) static_cast<void>(infer::write_answer("m", ask->id, {}, ask->all_binary, ask->inputs).ok());
  }
  return 0;
}
