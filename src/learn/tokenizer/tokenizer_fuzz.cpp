// A tokenizer.json from anywhere, and behind a line of its own a text for it.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.hpp"
#include "learn/tokenizer/stream.hpp"
#include "learn/tokenizer/tokenizer.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using tutti::tokenizer::Tokenizer;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const std::size_t line_end = bytes.find('\n');
  const std::string_view text = line_end == std::string_view::npos ? bytes : bytes.substr(line_end + 1);
  if (const auto tokenizer = Tokenizer::parse(bytes.substr(0, line_end))) {
    const auto tokens = tokenizer->encode(text);
    static_cast<void>(tokenizer->decode(tokens));
    for (const auto token : tokens) TUTTI_CHECK(token < tokenizer->vocabulary());
    for (const auto token : tokenizer->encode(text, {.special = false, .frame = true}))
      TUTTI_CHECK(token < tokenizer->vocabulary());
    tutti::tokenizer::TextStream stream(*tokenizer, {});
    std::string streamed;
    for (const auto token : tokens) streamed += stream.add(token);
    TUTTI_CHECK(streamed + stream.finish() == tokenizer->decode(tokens));
    static_cast<void>(tokenizer->encode(tokenizer->guarded(text), {.guards = true}));
  }
  static const Tokenizer plain = Tokenizer::bytes();
  TUTTI_CHECK(plain.decode(plain.encode(text)) == text);
  return 0;
}
