#include "serve/server/prepare.hpp"

#include <sys/resource.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>

#include <gtest/gtest.h>

#include "learn/tokenizer/tokenizer.hpp"
#include "serve/cpu/tiny_folder_test.hpp"

namespace tutti::serve {
namespace {

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

// In a process of its own: from here on there is no memory to speak of beyond what it has.
void take_memory_away() {
  std::ifstream file("/proc/self/statm");
  rlim_t pages = 0;
  file >> pages;
  const rlim_t bytes = pages * 4096 + (4U << 20U);
  const rlimit limit{bytes, bytes};
  if (setrlimit(RLIMIT_AS, &limit) != 0) std::abort();
}

TEST(Preparation, WhereThereIsNoMemoryTheRequestFailsAndNothingElse) {
  const cpu::TinyFolder folder(257, 4096, tokenizer::Tokenizer::bytes().json());
  auto loaded = load(folder.path(), {.threads = 1, .cache_bytes = 16 << 20, .name = "tiny"});
  ASSERT_TRUE(loaded) << loaded.error().text();
  Preparation preparation(*loaded, loaded->model->limits());
  const auto body = [](std::size_t bytes) {
    return R"({"messages":[{"role":"user","content":")" + std::string(bytes, 'a') + R"("}]})";
  };
  const std::string large = body(std::size_t{24} << 20U);
  const std::string small = body(10);
  const Preparation::Facts facts{};
  EXPECT_EXIT(
      {
        take_memory_away();
        const auto refused = preparation.prepare(api::Kind::chat, large, facts);
        const bool is_told = !refused && refused.error().code() == ErrorCode::failed;
        if (is_told) std::cerr << refused.error().text() << '\n';
        std::_Exit(is_told && preparation.prepare(api::Kind::chat, small, facts) ? 0 : 1);
      },
      testing::ExitedWithCode(0), "no memory for the request");
}

#endif

}  // namespace
}  // namespace tutti::serve
