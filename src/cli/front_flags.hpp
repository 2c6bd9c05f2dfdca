// Where a program that answers over HTTP listens, and to whom: what `tutti engine` and `tutti gateway` have
// in common. Main thread.
#pragma once

#include <cstdint>
#include <string>

#include "base/config/flags.hpp"
#include "base/result.hpp"
#include "serve/server/front.hpp"

namespace tutti::cli {

// Whoever writes a variable that is not set means no file that is not asked for.
config::Flags::Setter path_into(std::string& target);

class FrontFlags {
 public:
  explicit FrontFlags(std::string listen) : listen_(std::move(listen)), usual_(listen_) {}

  void declare(config::Flags& flags);
  // Of one whose place is not for people to choose: a free port of that address, and this key. Before
  // settle(); refuses a place that was given all the same.
  Result<> settle_at(const std::string& address, const std::string& key);
  // After the flags are read: the address is parsed, the key is read.
  Result<serve::FrontSettings> settle();

  // What follows is of those settings.
  void warn_of_plain_text(const serve::FrontSettings& settings) const;
  static std::string url(const serve::FrontSettings& settings, std::uint16_t port, const std::string& path);

 private:
  std::string listen_;
  const std::string usual_;
  std::string key_file_;
  std::int64_t connections_ = 2'048;
  serve::FrontSettings settings_;
};

}  // namespace tutti::cli
