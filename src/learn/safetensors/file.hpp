// A safetensors file opened for reading. It is const after open(): any thread, several at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/files/descriptor.hpp"
#include "base/result.hpp"
#include "learn/safetensors/header.hpp"

namespace tutti::safetensors {

class File {
 public:
  static Result<File> open(const std::string& path);

  const Header& header() const { return header_; }
  const Entry* find(std::string_view name) const { return header_.find(name); }
  // The bytes of the file from this offset on, as many as there is room for. A file that has shrunk is an
  // error.
  Result<> read(std::uint64_t begin, std::span<std::byte> bytes) const;

 private:
  File(std::string path, files::FileDescriptor file, Header header)
      : path_(std::move(path)), file_(std::move(file)), header_(std::move(header)) {}

  std::string path_;
  files::FileDescriptor file_;
  Header header_;
};

}  // namespace tutti::safetensors
