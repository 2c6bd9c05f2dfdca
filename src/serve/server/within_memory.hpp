// What a request costs to read is bounded, but the machine may have less than that just now.
#pragma once

#include <new>

#include "base/result.hpp"

namespace tutti::serve {

// What `work` gives. Where there is no memory for it that is a failure of the one request, and not the end of
// the engine with all its answers.
template <class Work>
auto within_memory(const Work& work) -> decltype(work()) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return failed("this machine has no memory for the request just now").remedy("ask again in a while");
  }
}

}  // namespace tutti::serve
