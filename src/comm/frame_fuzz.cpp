// What arrives at the hub and at a rank's line to it: frames, and what is in them.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "comm/frame.hpp"
#include "comm/verdict.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tutti::comm;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  FrameReader reader;
  reader.add(bytes);
  Frame frame;
  while (reader.next(frame) == FrameReader::Next::frame) {
    if (const auto question = Question::decode(frame.content)) {
      const auto report = Report::decode(frame.content);
      if (!judge(*question, report ? std::span(&*report, 1) : std::span<const Report>(), {}).text.empty())
        continue;
      __builtin_trap();  // there is always a verdict
    }
    [[maybe_unused]] const auto report = Report::decode(frame.content);
  }
  return 0;
}
