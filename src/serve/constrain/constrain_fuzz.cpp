// A pattern or a schema from anywhere: it is refused, or what it lets through is text that it takes.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.hpp"
#include "base/json/parse.hpp"
#include "base/prng.hpp"
#include "serve/constrain/constrain.hpp"

namespace {

std::string_view text_of(tutti::serve::Token token) {
  static const std::string bytes = [] {
    std::string all;
    for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
    return all;
  }();
  return token == 0 ? std::string_view()
                    : std::string_view(bytes).substr(static_cast<std::size_t>(token) - 1, 1);
}

// Some tokens that may come.
void walk(tutti::serve::Guide& guide) {
  tutti::Prng random(1);
  auto state = guide.start();
  for (int step = 0; step < 50 && !guide.ended(state); ++step) {
    const auto mask = guide.allowed(state);
    const auto first = static_cast<tutti::serve::Token>(random.below(257));
    auto token = first;
    while ((mask[static_cast<std::size_t>(token) / 64] >> token % 64 & 1U) == 0) {
      token = (token + 1) % 257;
      if (token == first) return;
    }
    state = guide.next(state, token);
    TUTTI_CHECK(state != tutti::serve::Guide::dead, "what may come can be read");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tutti::serve;
  static const auto tokens = std::make_shared<const TokenTable>(257, text_of, std::vector<Token>{0});
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (auto guide = guide_of_schema(tokens, text)) walk(**guide);
  if (auto guide = guide_of_pattern(tokens, text)) walk(**guide);
  return 0;
}
