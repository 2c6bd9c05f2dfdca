// Pieces of answers on their way from the engine's thread to the network loop: many are fetched at once, so
// that the engine is never kept waiting and the loop is woken once a step. Any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <utility>

#include "serve/batch/batch.hpp"

namespace tutti::serve {

struct Letter {
  std::uint64_t reply = 0;
  std::size_t request = 0;  // of the reply
  Piece piece;
};

class Mailbox {
 public:
  // `wake` is called for the first letter after a take(), and leads to the next one, on another thread.
  explicit Mailbox(std::function<void()> wake) : wake_(std::move(wake)) {}

  // Where there is no memory for it, nothing has happened and the piece is as it was.
  void put(std::uint64_t reply, std::size_t request, Piece&& piece) {
    std::list<Letter> letter;
    letter.push_back({reply, request, {}});
    const std::scoped_lock lock(mutex_);
    if (!is_woken_) wake_();
    is_woken_ = true;
    letter.front().piece = std::move(piece);
    letters_.splice(letters_.end(), letter);
  }
  std::list<Letter> take() {
    const std::scoped_lock lock(mutex_);
    is_woken_ = false;
    return std::exchange(letters_, {});
  }

 private:
  const std::function<void()> wake_;
  std::mutex mutex_;  // of what follows
  bool is_woken_ = false;
  std::list<Letter> letters_;
};

}  // namespace tutti::serve
