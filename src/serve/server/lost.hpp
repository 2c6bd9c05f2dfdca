// Replies for which there was no memory beside the loop. Telling the loop of them takes none: what it takes
// is taken before. Any thread.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <utility>

#include "base/check.hpp"
#include "base/files/descriptor.hpp"

namespace tutti::serve {

class Lost {
 public:
  Lost() : event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    TUTTI_CHECK(event_.valid(), "there are files to open");
  }

  // To be called once at most; this outlives it.
  std::function<void()> teller(std::uint64_t reply) {
    return [this, word = std::make_shared<std::list<std::uint64_t>>(1, reply)] {
      {
        const std::scoped_lock lock(mutex_);
        replies_.splice(replies_.end(), *word);
      }
      const std::uint64_t one = 1;
      TUTTI_CHECK(::write(event_.get(), &one, sizeof one) == sizeof one);
    };
  }

  // Readable when somebody was told of.
  int descriptor() const { return event_.get(); }
  std::list<std::uint64_t> take() {
    std::uint64_t count = 0;
    static_cast<void>(!::read(event_.get(), &count, sizeof count));
    const std::scoped_lock lock(mutex_);
    return std::exchange(replies_, {});
  }

 private:
  const files::FileDescriptor event_;
  std::mutex mutex_;  // of what follows
  std::list<std::uint64_t> replies_;
};

}  // namespace tutti::serve
