#include "cli/terminal.hpp"

#include <cstdio>

#include "base/visible.hpp"

namespace tutti::cli {

void print_text(const std::string& text) { std::fputs(visible(text).c_str(), stdout); }

void print_note(const std::string& text) { std::fprintf(stderr, "tutti: %s\n", visible(text).c_str()); }

}  // namespace tutti::cli
