// What answers hold in memory until it is sent, of all of them together and shared by address: what slow
// readers of streams have not taken, and whole answers from what is collected for them until they are read.
// Where there is no room, who
// holds most of the same address is let go. Used by the server's loop only.
#pragma once

#include <cstddef>
#include <functional>
#include <set>
#include <string>

#include "base/portions.hpp"

namespace tutti::serve {

inline constexpr std::size_t unsent_bytes_max = std::size_t{256} << 20;

class Unsent {
 public:
  explicit Unsent(std::size_t bytes_max = unsent_bytes_max) : shares_(bytes_max) {}
  Unsent(const Unsent&) = delete;
  Unsent& operator=(const Unsent&) = delete;

  // What one answer holds.
  class Share {
   public:
    // `let_go` is called at most once, with nothing held any more. The whole outlives it.
    Share(Unsent& unsent, std::string address, std::function<void()> let_go);
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;
    ~Share() { release(); }

    // More. False if it was itself let go, now or before.
    bool hold(std::size_t bytes);
    // It is sent.
    void release();
    std::size_t bytes() const { return bytes_; }

   private:
    friend class Unsent;
    void give_up();

    Unsent& unsent_;
    const std::string address_;
    const std::function<void()> let_go_;
    std::size_t bytes_ = 0;
    bool was_let_go_ = false;
  };

  std::size_t bytes() const { return shares_.all(); }

 private:
  // Of this address, who holds most; null if nobody holds anything.
  Share* largest(const std::string& address) const;

  Portions shares_;
  std::set<Share*> holders_;
};

}  // namespace tutti::serve
