#include "base/files/names.hpp"

#include <random>

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

std::string unforeseen_name(std::string_view begin) {
  std::random_device random;
  return std::string(begin) + std::to_string(random()) + "-" + std::to_string(random());
}

}  // namespace tutti::files
