#include "base/check.hpp"

#include <cstdio>
#include <cstdlib>

namespace tutti {

void check_failed(const char* file, int line, const char* condition, const char* meaning) {
  std::fprintf(stderr, "%s:%d: check failed: %s%s%s\n", file, line, condition, *meaning == '\0' ? "" : ": ",
               meaning);
  std::fflush(stderr);
  std::abort();
}

}  // namespace tutti
