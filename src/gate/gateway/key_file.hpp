// The file with the keys of those who may ask (gate/quota), read again when it is another one. What cannot be
// read, or is not understood, changes nothing. Used by the gateway's loop only.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>

#include "base/result.hpp"
#include "gate/quota/keys.hpp"

namespace tutti::gate {

class KeyFile {
 public:
  explicit KeyFile(std::string path) : path_(std::move(path)) {}

  // Reads it if it has changed; whether it had. Refused is a file that others can read.
  Result<bool> look();
  const Keys& keys() const { return keys_; }
  // Null: nobody has this key. The time that takes tells nothing of any key.
  const KeyRules* find(std::string_view key) const;

 private:
  using Place = std::tuple<dev_t, ino_t, std::int64_t, std::int64_t, std::int64_t>;  // and its size, and when

  const std::string path_;
  Place seen_{};
  Keys keys_;
};

}  // namespace tutti::gate
