#include <cstdint>

#include "cli/jobfile/job_file.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  auto file = tutti::jobfile::parse_job_file(bytes, "fuzz.sh");
  if (file) static_cast<void>(file->draft.finish());
  return 0;
}
