#include <cstring>
#include <span>
#include <string_view>

#include "cli/dispatch.hpp"

namespace {

// Others of this machine see the words of a process for as long as it lives, and an agent lives for long.
void hide_tokens(std::span<char*> words) {
  constexpr std::string_view flag = "--token";
  for (std::size_t at = 0; at < words.size(); ++at) {
    const std::string_view word = words[at];
    char* token = nullptr;
    if (word == flag && at + 1 < words.size()) token = words[at + 1];
    if (word.starts_with(flag) && word.substr(flag.size()).starts_with('='))
      token = words[at] + flag.size() + 1;
    if (token != nullptr) std::memset(token, '*', std::strlen(token));
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  hide_tokens({argv + 1, argv + argc});
  return tutti::cli::dispatch(words);
}
