#include "serve/server/guide_shelf.hpp"

#include <algorithm>
#include <string>

namespace tutti::serve {

std::shared_ptr<Guide> GuideShelf::find(const api::Form& form) {
  const std::scoped_lock lock(mutex_);
  return found(form);
}

std::shared_ptr<Guide> GuideShelf::found(const api::Form& form) {
  const auto known = std::ranges::find(kept_, form, &Kept::form);
  if (known == kept_.end()) return nullptr;
  kept_.splice(kept_.begin(), kept_, known);
  return known->guide;
}

Result<std::shared_ptr<Guide>> GuideShelf::keep(const api::Form& form, std::shared_ptr<Guide> guide) {
  const std::scoped_lock lock(mutex_);
  if (auto other = found(form)) return other;
  const std::size_t own = guide->bytes() + form.text.size();
  while (!kept_.empty() && (kept_.size() >= guides_kept_max || living_bytes() + own > bytes_max_))
    drop_last();
  // Any object is one small form for all, which nobody may keep others from.
  const bool always_has_room = form.kind == api::Form::Kind::any_object;
  if (!always_has_room && living_bytes() + own > bytes_max_) {
    return failed("the forms of the answers under way fill the " + std::to_string(bytes_max_ >> 20U) +
                  " MiB that there are for them")
        .remedy("ask again in a while, or for a smaller form");
  }
  kept_.push_front({form, guide});
  return guide;
}

std::size_t GuideShelf::bytes() {
  const std::scoped_lock lock(mutex_);
  return living_bytes();
}

void GuideShelf::drop_last() {
  dropped_.emplace_back(kept_.back().guide);
  kept_.pop_back();
}

std::size_t GuideShelf::living_bytes() {
  std::size_t bytes = 0;
  for (const Kept& kept : kept_) bytes += kept.guide->bytes() + kept.form.text.size();
  std::erase_if(dropped_, [&](const std::weak_ptr<Guide>& dropped) {
    const auto guide = dropped.lock();
    if (guide) bytes += guide->bytes();
    return guide == nullptr;
  });
  return bytes;
}

}  // namespace tutti::serve
