// Messages over a socket between two processes of one machine, each whole or not at all. One thread at a
// time.
#pragma once

#include <optional>
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
  // Nothing: the other side has gone.
  Result<std::optional<Message>> receive() const;
  // To wait for what comes.
  int descriptor() const { return socket_.get(); }

 private:
  // False: the other side has gone before all of it came.
  Result<bool> fill(std::string& bytes) const;

  files::FileDescriptor socket_;
};

}  // namespace tutti::serve::remote
