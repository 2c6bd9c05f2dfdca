// Whatever clients send is read or refused; what was read can be passed on with one member more.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "gate/ask/ask.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  const auto ask = tutti::gate::read_ask(body);
  if (!ask) return 0;
  const auto again = tutti::gate::read_ask(tutti::gate::with_member(body, "added", "[1,2]"));
  if (!again || again->model != ask->model || again->marks != ask->marks) std::abort();
  return 0;
}
