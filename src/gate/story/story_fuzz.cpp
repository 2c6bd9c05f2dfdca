// Whatever engines send is passed on or refused, and cut anywhere it comes to the same.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "gate/story/story.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  tutti::gate::Story whole(true, false);
  const auto at_once = whole.take(bytes);
  tutti::gate::Story cut(true, false);
  std::string out;
  for (const char byte : bytes) {
    const auto piece = cut.take(std::string_view(&byte, 1));
    if (!piece) return 0;
    out += *piece;
  }
  if (!at_once || out != *at_once || cut.tokens() != whole.tokens()) std::abort();
  return 0;
}
