// Pieces of answers on their way from the engine's thread to the network loop: many are fetched at once, so
// that the engine is never kept waiting and the loop is woken once a step. Any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "serve/batch/batch.hpp"

namespace tutti::serve {

struct Letter {
  std::uint64_t reply = 0;
  std::size_t request = 0;  // of the reply
  Piece piece;
};

class Mailbox {
 public:
  // `wake` is called when the box was empty, and leads to take().
  explicit Mailbox(std::function<void()> wake) : wake_(std::move(wake)) {}

  void put(Letter letter) {
    bool was_empty = false;
    {
      const std::scoped_lock lock(mutex_);
      was_empty = letters_.empty();
      letters_.push_back(std::move(letter));
    }
    if (was_empty) wake_();
  }
  std::vector<Letter> take() {
    const std::scoped_lock lock(mutex_);
    return std::exchange(letters_, {});
  }

 private:
  const std::function<void()> wake_;
  std::mutex mutex_;
  std::vector<Letter> letters_;
};

}  // namespace tutti::serve
