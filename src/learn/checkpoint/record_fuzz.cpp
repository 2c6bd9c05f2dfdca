// What a rank sends of its file, and most of a manifest: whatever it claims, the parser answers, and what it
// accepts is written and read the same.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "learn/checkpoint/manifest.hpp"
#include "learn/checkpoint/tensors.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tutti::checkpoint;
  const auto record = FileRecord::parse({reinterpret_cast<const char*>(data), size});
  if (!record) return 0;
  const auto again = FileRecord::parse(record->json());
  if (!again || *again != *record) __builtin_trap();
  [[maybe_unused]] const auto tensors = index_tensors(std::span(&*record, 1));
  return 0;
}
