#include "serve/server/key.hpp"

#include <sys/stat.h>

#include "base/files/files.hpp"
#include "base/text.hpp"
#include "base/visible.hpp"

namespace tutti::serve {

Result<std::string> read_key(const std::string& path) {
  const auto opened = files::open_existing_file(path);
  if (!opened) return opened.error();
  struct stat status {};
  if (fstat(opened->file.get(), &status) != 0) return failed_errno(path, errno);
  if ((status.st_mode & (S_IRWXG | S_IRWXO)) != 0)
    return invalid("others can read this key").within(path).remedy("chmod 600 makes it yours alone");
  const auto text = files::read_existing_file(path, key_file_bytes_max);
  if (!text) return text.error();
  const std::string key(trim(std::string_view(*text).substr(0, text->find('\n'))));
  if (key.empty()) return invalid("there is no key in its first line").within(path);
  for (const char letter : key) {
    if (letter <= ' ' || letter > '~')
      return invalid("a key has letters, digits and signs of ASCII alone").within(path);
  }
  return key;
}

Result<std::string> read_own_key(const std::string& path) {
  auto key = read_key(path);
  if (key && key->size() < key_letters_min)
    return invalid("the key has fewer than " + std::to_string(key_letters_min) + " letters")
        .within(path)
        .remedy("`openssl rand -hex 32` makes a good one");
  return key;
}

bool is_same_key(std::string_view key, std::string_view given) {
  // Every letter of what was given is looked at, whatever the others were.
  unsigned different = key.size() == given.size() ? 0 : 1;
  for (std::size_t at = 0; at < given.size(); ++at) {
    const char own = key.empty() ? '\0' : key[at % key.size()];
    different |= static_cast<unsigned char>(own ^ given[at]);
  }
  return different == 0;
}

}  // namespace tutti::serve
