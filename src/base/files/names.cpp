#include "base/files/names.hpp"

namespace tutti::files {

std::string printable(std::string_view name) {
  constexpr std::size_t name_bytes_max = 400;
  std::string text;
  for (const char letter : name.substr(0, name_bytes_max)) {
    const bool control = static_cast<unsigned char>(letter) < 0x20 || letter == 0x7f;
    text += control ? '?' : letter;
  }
  return text + (name.size() > name_bytes_max ? "…" : "");
}

std::string shown(std::string_view name) { return "'" + printable(name) + "'"; }

}  // namespace tutti::files
