#include "net/http/leaving.hpp"

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include <boost/asio/steady_timer.hpp>

namespace tutti::net {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using tcp = asio::ip::tcp;

// How soon it is looked again where the system cannot tell by itself: later each time, because there may be
// thousands who have sent something.
constexpr auto look_again_time = std::chrono::milliseconds(200);
constexpr auto look_again_time_max = std::chrono::milliseconds(3200);

}  // namespace

// Bytes that wait do not hide its end: they may be the next request's, or the last words of TLS.
class Leaving::Watch final : public std::enable_shared_from_this<Watch> {
 public:
  Watch(tcp::socket& socket, std::function<void()> gone)
      : socket_(socket), again_(socket.get_executor()), gone_(std::move(gone)) {}

  void begin() {
    socket_.async_wait(tcp::socket::wait_read,
                       [self = shared_from_this()](error_code failure) { self->look(failure); });
  }
  void end() {
    is_over_ = true;
    again_.cancel();
    error_code ignored;
    socket_.cancel(ignored);
  }

 private:
  void look(error_code failure) {
    if (is_over_ || failure == asio::error::operation_aborted) return;
    if (is_gone()) {
      is_over_ = true;
      return gone_();
    }
    // As long as something waits to be read, the system would call at once.
    again_.expires_after(look_again_);
    look_again_ = std::min(2 * look_again_, look_again_time_max);
    again_.async_wait([self = shared_from_this()](error_code cancelled) { self->look(cancelled); });
  }
  bool is_gone() {
    pollfd looked{.fd = socket_.native_handle(), .events = POLLRDHUP, .revents = 0};
    return ::poll(&looked, 1, 0) > 0;
  }

  tcp::socket& socket_;
  asio::steady_timer again_;
  const std::function<void()> gone_;
  std::chrono::milliseconds look_again_ = look_again_time;
  bool is_over_ = false;
};

Leaving::Leaving(tcp::socket& socket, std::function<void()> gone)
    : watch_(std::make_shared<Watch>(socket, std::move(gone))) {
  watch_->begin();
}

Leaving::~Leaving() { watch_->end(); }

}  // namespace tutti::net
