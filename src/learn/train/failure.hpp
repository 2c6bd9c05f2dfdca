// Inside the trainer a failure travels as an exception, as libtorch's own do: the border of the module
// catches both and returns a Result.
#pragma once

#include <exception>
#include <utility>

#include "base/result.hpp"

namespace tutti::train {

class Failure : public std::exception {
 public:
  explicit Failure(Error error) : error_(std::move(error)), text_(error_.text()) {}
  const Error& error() const { return error_; }
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  Error error_;
  std::string text_;
};

inline void require(Result<> result) {
  if (!result) throw Failure(std::move(result).error());
}

template <class T>
T require(Result<T> result) {
  if (!result) throw Failure(std::move(result).error());
  return std::move(result).value();
}

// The same of what the run's disk was asked for: what it did not do now, it may do for a later attempt.
inline void require_disk(Result<> result) {
  if (result) return;
  const bool later = result.error().code() == ErrorCode::failed;
  throw Failure(later ? std::move(result).error().as(ErrorCode::unknown) : std::move(result).error());
}

template <class T>
T require_disk(Result<T> result) {
  if (!result) require_disk(Result<>(std::move(result).error()));
  return std::move(result).value();
}

// Runs the work; what it throws comes back as an error.
template <class F>
auto caught(const F& work) -> Result<decltype(work())> {
  try {
    if constexpr (std::is_void_v<decltype(work())>) {
      work();
      return {};
    } else {
      return work();
    }
  } catch (const Failure& failure) {
    return failure.error();
  } catch (const std::exception& thrown) {
    return failed(thrown.what());
  }
}

}  // namespace tutti::train
