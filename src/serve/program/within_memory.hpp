// What a request costs is bounded, but the machine may have less than that just now. Any thread.
#pragma once

#include <new>

#include "base/result.hpp"

namespace tutti::serve {

// Why such a request fails.
inline Error no_memory() {
  return failed("this machine has no memory for the request just now").remedy("ask again in a while");
}

// What `work` gives. Where there is no memory for it that is a failure of the one request, and not the end of
// the engine with all its answers.
template <class Work>
auto within_memory(const Work& work) -> decltype(work()) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return no_memory();
  }
}

}  // namespace tutti::serve
