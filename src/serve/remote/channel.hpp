// Messages over a socket between two processes of one machine, each whole or not at all. One thread at a
// time.
#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/files/descriptor.hpp"
#include "base/result.hpp"
#include "serve/remote/codec.hpp"

namespace tutti::serve::remote {

struct Message {
  Word word = Word::failed;
  std::string bytes;
};

class Channel {
 public:
  explicit Channel(files::FileDescriptor socket) : socket_(std::move(socket)) {}

  Result<> send(Word word, std::string_view bytes) const;
  // Whether receive() would not wait for the beginning of something.
  bool has_message() const;
  // Nothing: the other side has gone. Fails when all of a message has not come by then. Where there is no
  // memory for a message that is thrown as ever, and the next one can be received.
  using Until = std::optional<std::chrono::steady_clock::time_point>;
  Result<std::optional<Message>> receive(Until until = std::nullopt) const;
  // The other side is there still, as far as this machine knows. Does not wait.
  bool is_open() const;
  int descriptor() const { return socket_.get(); }

 private:
  // False: the other side has gone before all of it came.
  Result<bool> fill(std::span<char> bytes, Until until) const;
  Result<bool> skip(std::size_t bytes, Until until) const;

  files::FileDescriptor socket_;
};

}  // namespace tutti::serve::remote
