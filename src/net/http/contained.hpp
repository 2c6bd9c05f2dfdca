// A coroutine whose end is always heard of. Where an operation of Asio's or Beast's cannot even begin, or go
// on, for want of memory, what that throws is seen by nobody inside the coroutine: it is taken away with all
// its frames while the exception leaves for the loop (loop.cpp). Here that is an exception like any other,
// for whoever awaits it. For this module's own files only.
#pragma once

#include <exception>
#include <memory>
#include <new>
#include <utility>

#include "net/http/session.hpp"

namespace tutti::net {

struct Ending {
  explicit Ending(asio::io_context& context) : over(context.get_executor()) {}

  Signal over;
  // Until it is told otherwise it was taken away.
  std::exception_ptr failure = std::make_exception_ptr(std::bad_alloc());
};

// Tells the ending, by a call or by going without one. Not when the loop itself goes: nobody waits then.
class Teller {
 public:
  Teller(asio::io_context& context, std::shared_ptr<Ending> ending)
      : context_(&context), ending_(std::move(ending)) {}
  Teller(Teller&&) = default;
  Teller& operator=(Teller&&) = delete;
  ~Teller() {
    if (ending_ && context_->get_executor().running_in_this_thread()) ending_->over.set();
  }

  void operator()(const std::exception_ptr& failure) {
    ending_->failure = failure;
    std::exchange(ending_, nullptr)->over.set();
  }

 private:
  asio::io_context* context_;
  std::shared_ptr<Ending> ending_;
};

// Runs it beside the caller, who awaits the ending.
inline std::shared_ptr<Ending> launch(asio::io_context& context, asio::awaitable<void> work) {
  auto ending = std::make_shared<Ending>(context);
  asio::co_spawn(context, std::move(work), Teller(context, ending));
  return ending;
}

inline asio::awaitable<void> contained(asio::io_context& context, asio::awaitable<void> work) {
  const auto ending = launch(context, std::move(work));
  co_await ending->over.wait();
  if (ending->failure) std::rethrow_exception(ending->failure);
}

}  // namespace tutti::net
