#include "serve/remote/channel.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>

#include "base/clock/clock.hpp"

namespace tutti::serve::remote {
namespace {

constexpr const char* what = "the socket between tutti and its worker";

constexpr std::size_t skipped_at_once_bytes = 16 << 10;

// False when the time is over before there is something to read.
bool is_readable(int descriptor, SteadyClock::time_point until) {
  pollfd entry{.fd = descriptor, .events = POLLIN, .revents = 0};
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - SteadyClock::now()).count();
    const int ready = ::poll(&entry, 1, static_cast<int>(std::max<std::int64_t>(left, 0)));
    if (ready >= 0 || errno != EINTR) return ready != 0;
  }
}

}  // namespace

Result<> Channel::send(Word word, std::string_view bytes) const {
  if (bytes.size() > frame_bytes_max) return failed("a step is too large for one message");
  const FrameHead head{word, static_cast<std::uint32_t>(bytes.size())};
  std::string_view front(reinterpret_cast<const char*>(&head), sizeof head);
  while (!front.empty() || !bytes.empty()) {
    std::array<iovec, 2> parts{
        {{const_cast<char*>(front.data()), front.size()}, {const_cast<char*>(bytes.data()), bytes.size()}}};
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    const ssize_t sent = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return failed_errno(what, errno);
    const std::size_t of_front = std::min(static_cast<std::size_t>(sent), front.size());
    front.remove_prefix(of_front);
    bytes.remove_prefix(static_cast<std::size_t>(sent) - of_front);
  }
  return {};
}

Result<bool> Channel::fill(std::span<char> bytes, Until until) const {
  std::size_t got = 0;
  while (got < bytes.size()) {
    if (until && !is_readable(socket_.get(), *until)) return failed("nothing has come in time").within(what);
    const ssize_t count = ::recv(socket_.get(), bytes.data() + got, bytes.size() - got, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == ECONNRESET) return false;
    if (count < 0) return failed_errno(what, errno);
    if (count == 0) return false;
    got += static_cast<std::size_t>(count);
  }
  return true;
}

Result<bool> Channel::skip(std::size_t bytes, Until until) const {
  std::array<char, skipped_at_once_bytes> skipped;
  while (bytes > 0) {
    const auto piece = std::span(skipped).first(std::min(bytes, skipped.size()));
    auto filled = fill(piece, until);
    if (!filled || !*filled) return filled;
    bytes -= piece.size();
  }
  return true;
}

bool Channel::has_message() const {
  pollfd entry{.fd = socket_.get(), .events = POLLIN, .revents = 0};
  return ::poll(&entry, 1, 0) > 0;
}

bool Channel::is_open() const {
  pollfd socket{.fd = socket_.get(), .events = POLLRDHUP, .revents = 0};
  return ::poll(&socket, 1, 0) <= 0 || (socket.revents & (POLLHUP | POLLRDHUP | POLLERR)) == 0;
}

Result<std::optional<Message>> Channel::receive(Until until) const {
  std::string bytes(sizeof(FrameHead), '\0');
  auto filled = fill(bytes, until);
  if (!filled) return std::move(filled).error();
  if (!*filled) return std::optional<Message>();
  FrameHead head;
  std::memcpy(&head, bytes.data(), sizeof head);
  if (head.bytes > frame_bytes_max) return failed("a message is too large").within(what);
  Message message{head.word, {}};
  try {
    message.bytes.resize(head.bytes);
  } catch (const std::bad_alloc&) {
    // What stays in the socket would be taken for the next message.
    filled = skip(head.bytes, until);
    if (filled && *filled) throw;
  }
  if (filled && *filled) filled = fill(message.bytes, until);
  if (!filled) return std::move(filled).error();
  if (!*filled) return std::optional<Message>();
  return std::optional<Message>(std::move(message));
}

}  // namespace tutti::serve::remote
