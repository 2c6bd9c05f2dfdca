#include "gate/gateway/key_file.hpp"

#include <sys/stat.h>

#include <span>

#include "base/files/files.hpp"
#include "net/sync/digest.hpp"

namespace tutti::gate {

Result<bool> KeyFile::look() {
  const auto opened = files::open_existing_file(path_);
  if (!opened) return opened.error();
  struct stat status {};
  if (::fstat(opened->file.get(), &status) != 0) return failed_errno(path_, errno);
  const Place place{status.st_dev, status.st_ino, status.st_size, status.st_mtim.tv_sec,
                    status.st_mtim.tv_nsec};
  if (place == seen_) return false;
  seen_ = place;  // what is wrong with it is said once
  if ((status.st_mode & (S_IRWXG | S_IRWXO)) != 0)
    return invalid("others can read these keys").within(path_).remedy("chmod 600 makes them yours alone");
  const auto text = files::read_existing_file(path_, keys_bytes_max);
  if (!text) return text.error();
  auto keys = read_keys(*text);
  if (!keys) return std::move(keys).error().within(path_);
  keys_ = std::move(*keys);
  return true;
}

const KeyRules* KeyFile::find(std::string_view key) const {
  const auto found = keys_.find(sync::hash_bytes(std::as_bytes(std::span(key))));
  return found == keys_.end() ? nullptr : &found->second;
}

}  // namespace tutti::gate
