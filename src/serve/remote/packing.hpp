// Values as the bytes of a message, and back. Pure.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/result.hpp"

namespace tutti::serve::remote {

class Writer {
 public:
  template <class T>
  requires std::is_trivially_copyable_v<T>
  void put(const T& value) { bytes_.append(reinterpret_cast<const char*>(&value), sizeof value); }
  void put_text(std::string_view text) {
    put(static_cast<std::uint64_t>(text.size()));
    bytes_ += text;
  }
  template <class T>
  void put_list(std::span<const T> list) {
    put(static_cast<std::uint64_t>(list.size()));
    bytes_.append(reinterpret_cast<const char*>(list.data()), list.size_bytes());
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// After the first byte that is missing everything is zero or empty, and the reader is not fine.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  template <class T>
  requires std::is_trivially_copyable_v<T> T get() {
    T value{};
    if (bytes_.size() < sizeof value) {
      fail();
      return value;
    }
    std::memcpy(&value, bytes_.data(), sizeof value);
    bytes_.remove_prefix(sizeof value);
    return value;
  }
  std::string get_text() {
    const auto count = get<std::uint64_t>();
    if (count > bytes_.size()) {
      fail();
      return {};
    }
    std::string text(bytes_.substr(0, count));
    bytes_.remove_prefix(count);
    return text;
  }
  template <class T>
  std::vector<T> get_list() {
    const auto count = get<std::uint64_t>();
    if (count > bytes_.size() / sizeof(T)) {
      fail();
      return {};
    }
    std::vector<T> list(count);
    if (count > 0) std::memcpy(list.data(), bytes_.data(), count * sizeof(T));
    bytes_.remove_prefix(count * sizeof(T));
    return list;
  }
  // Of entries that take at least so many bytes each.
  std::size_t get_count(std::size_t bytes_each) {
    const auto count = get<std::uint64_t>();
    if (count <= bytes_.size() / bytes_each) return count;
    fail();
    return 0;
  }
  Result<> end() const {
    if (is_fine_ && bytes_.empty()) return {};
    return failed("a message between tutti and its worker is not whole")
        .remedy("tutti and tutti-worker must be of one version");
  }

 private:
  void fail() {
    is_fine_ = false;
    bytes_ = {};
  }

  std::string_view bytes_;
  bool is_fine_ = true;
};

}  // namespace tutti::serve::remote
