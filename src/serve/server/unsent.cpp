#include "serve/server/unsent.hpp"

#include <utility>

namespace tutti::serve {

Unsent::Share::Share(Unsent& unsent, std::string address, std::function<void()> let_go)
    : unsent_(unsent), address_(std::move(address)), let_go_(std::move(let_go)) {}

bool Unsent::Share::hold(std::size_t bytes) {
  while (!was_let_go_ && !unsent_.shares_.take(address_, bytes)) {
    Share* const largest = unsent_.largest(address_);
    // It may want more at once than anybody else holds.
    Share& leaves = largest == nullptr || largest->bytes_ < bytes_ + bytes ? *this : *largest;
    leaves.give_up();
  }
  if (was_let_go_) return false;
  bytes_ += bytes;
  if (bytes_ > 0) unsent_.holders_.insert(this);
  return true;
}

void Unsent::Share::release() {
  unsent_.shares_.give_back(address_, std::exchange(bytes_, 0));
  unsent_.holders_.erase(this);
}

void Unsent::Share::give_up() {
  was_let_go_ = true;
  release();
  let_go_();
}

Unsent::Share* Unsent::largest(const std::string& address) const {
  Share* found = nullptr;
  for (Share* const share : holders_) {
    if (share->address_ == address && (found == nullptr || share->bytes_ > found->bytes_)) found = share;
  }
  return found;
}

}  // namespace tutti::serve
