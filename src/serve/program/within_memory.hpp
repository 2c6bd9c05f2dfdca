// What a request costs is bounded, but the machine may have less than that just now. Any thread.
#pragma once

#include <chrono>
#include <new>
#include <system_error>
#include <thread>

#include "base/result.hpp"

namespace tutti::serve {

// Between two attempts to get what is little.
inline constexpr std::chrono::milliseconds memory_pause{10};

// What `work` gives, as soon as there is memory for it: for the little without which nobody could even be
// told. It is begun again, so that it does all of its work or none.
template <class Work>
auto patiently(const Work& work) -> decltype(work()) {
  for (;;) {
    try {
      return work();
    } catch (const std::bad_alloc&) {
      std::this_thread::sleep_for(memory_pause);
    }
  }
}

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
    return patiently(no_memory);
  }
}

// The same for errands (server/workshop.hpp): where there is no memory to say so either that is thrown, and
// they are begun again, and not for ever.
template <class Work>
auto within_memory_of_errand(const Work& work) -> decltype(work()) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return no_memory();
  }
}

// The same for what starts threads, of which a machine may start no more.
template <class Work>
auto within_threads(const Work& work) -> decltype(work()) {
  return within_memory([&]() -> decltype(work()) {
    try {
      return work();
    } catch (const std::system_error& error) {
      return failed("this machine starts no more threads: " + error.code().message())
          .remedy("give it more memory, or more processes (`ulimit -u`, pids.max of its control group)");
    }
  });
}

}  // namespace tutti::serve
