// TUTTI_CHECK(condition [, "what it means"]): a fact the code relies on. It stays on in release builds; a
// broken one prints where and what, and aborts, because going on would act on a state nobody has thought of.
#pragma once

namespace tutti {

[[noreturn]] void check_failed(const char* file, int line, const char* condition, const char* meaning = "");

}  // namespace tutti

#define TUTTI_CHECK(condition, ...)   \
  ((condition) ? static_cast<void>(0) \
               : ::tutti::check_failed(__FILE__, __LINE__, #condition __VA_OPT__(, ) __VA_ARGS__))
