// Guides by the form that they were made of, for all who ask for the same: a guide remembers what it has
// computed. A bound on what all of them take of memory, those that answers still need among them: who was not
// asked for longest goes first, and where that is not enough a new one has to wait. Any thread.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "serve/api/ask.hpp"
#include "serve/batch/guide.hpp"

namespace tutti::serve {

inline constexpr std::size_t guides_kept_max = 32;
inline constexpr std::size_t guides_bytes_max = std::size_t{256} * 1024 * 1024;

class GuideShelf {
 public:
  explicit GuideShelf(std::size_t bytes_max = guides_bytes_max) : bytes_max_(bytes_max) {}

  // Null if there is none.
  std::shared_ptr<Guide> find(const api::Form& form);
  // The one to answer with: another of the same form if somebody was faster. A failure if there is no room
  // until other answers have ended.
  Result<std::shared_ptr<Guide>> keep(const api::Form& form, std::shared_ptr<Guide> guide);
  // Of all that live.
  std::size_t bytes();

 private:
  struct Kept {
    api::Form form;
    std::shared_ptr<Guide> guide;
  };

  std::shared_ptr<Guide> found(const api::Form& form);
  void drop_last();
  std::size_t living_bytes();

  const std::size_t bytes_max_;
  std::mutex mutex_;                           // of what follows
  std::list<Kept> kept_;                       // the latest first
  std::vector<std::weak_ptr<Guide>> dropped_;  // that answers still need
};

}  // namespace tutti::serve
