#include "base/check.hpp"

#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "base/last_words.hpp"

namespace tutti {
namespace {

constexpr std::size_t line_bytes_max = 1024;

void say_on_stderr(const char* line) {
  std::fputs(line, stderr);
  std::fflush(stderr);
}

std::atomic<LastWords> last_words = say_on_stderr;

}  // namespace

void set_last_words(LastWords say) { last_words = say != nullptr ? say : say_on_stderr; }

void check_failed(const char* file, int line, const char* condition, const char* meaning) {
  char text[line_bytes_max];
  std::snprintf(text, sizeof text, "%s:%d: check failed: %s%s%s\n", file, line, condition,
                *meaning == '\0' ? "" : ": ", meaning);
  last_words.load()(text);
  std::abort();
}

}  // namespace tutti
