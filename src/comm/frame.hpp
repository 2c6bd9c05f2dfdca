// Control messages as bytes: a length, then numbers in little-endian order and texts behind their length.
// What comes in is untrusted: the reader never looks past its end, and remembers that it was asked to.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace tutti::comm {

static_assert(std::endian::native == std::endian::little, "numbers travel as they lie in memory");

class Writer {
 public:
  template <class T>
  Writer& number(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  Writer& text(std::string_view text) {
    number(static_cast<std::uint32_t>(text.size()));
    bytes_ += text;
    return *this;
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  // 0 and an empty text after the end.
  template <class T>
  T number() {
    T value{};
    if (rest_.size() < sizeof value) {
      fail();
      return value;
    }
    std::memcpy(&value, rest_.data(), sizeof value);
    rest_.remove_prefix(sizeof value);
    return value;
  }
  std::string_view text() {
    const auto size = number<std::uint32_t>();
    if (rest_.size() < size) {
      fail();
      return {};
    }
    const std::string_view text = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return text;
  }
  bool ok() const { return ok_; }
  // Whether everything was read, and nothing beyond.
  bool complete() const { return ok_ && rest_.empty(); }

 private:
  void fail() {
    ok_ = false;
    rest_ = {};
  }

  std::string_view rest_;
  bool ok_ = true;
};

// A frame on the wire is its length in four bytes, its kind in one, and its content.
enum class FrameKind : std::uint8_t {
  // rank -> hub
  hello,
  exchange,
  goodbye,  // both ways: this end leaves, and that is no fault
  abort,
  ask,
  report,
  // hub -> rank
  exchanged,
  missing,
  question,
  verdict,
  fault,
  // hub -> rank, before it is one
  challenge,
  welcome,
};

struct Frame {
  FrameKind kind = FrameKind::hello;
  std::string content;
};

inline constexpr std::size_t frame_bytes_max = std::size_t{16} << 20;

inline std::string wire_form(FrameKind kind, std::string_view content) {
  Writer frame;
  frame.number(static_cast<std::uint32_t>(content.size() + 1)).number(static_cast<std::uint8_t>(kind));
  return frame.take().append(content);
}

// Cuts a stream of bytes into frames.
class FrameReader {
 public:
  void add(std::string_view bytes) { buffer_ += bytes; }

  enum class Next { frame, more, broken };
  Next next(Frame& frame) {
    if (buffer_.size() < 4) return Next::more;
    std::uint32_t size = 0;
    std::memcpy(&size, buffer_.data(), sizeof size);
    if (size == 0 || size > frame_bytes_max) return Next::broken;
    if (buffer_.size() < 4 + std::size_t{size}) return Next::more;
    const auto kind = static_cast<std::uint8_t>(buffer_[4]);
    if (kind > static_cast<std::uint8_t>(FrameKind::welcome)) return Next::broken;
    frame.kind = static_cast<FrameKind>(kind);
    frame.content = buffer_.substr(5, size - 1);
    buffer_.erase(0, 4 + std::size_t{size});
    return Next::frame;
  }

 private:
  std::string buffer_;
};

}  // namespace tutti::comm
