// How an expected failure travels: as a value that cannot be ignored. Exceptions stop at the borders of the
// libraries that throw them. Values, no shared state: safe on any thread.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/check.hpp"

namespace tutti {

// A code exists only if some caller acts on it.
enum class ErrorCode {
  invalid,    // the request itself is wrong: a program exits with 2, asking again does not help
  failed,     // the request was fine and the work was not: a program exits with 1
  unknown,    // the work may have been done or not: who can ask again without doing it twice does
  forbidden,  // who asks may not: a program exits with 1, and somebody else may
  damaged,    // what is stored could be read, and is not what was written: it is set aside; exits with 1
};

// What happened (message), to what (context, outermost first), and what to do about it (remedy).
class [[nodiscard]] Error {
 public:
  Error(ErrorCode code, std::string message) : code_(code), message_(std::move(message)) {}

  ErrorCode code() const { return code_; }
  const std::string& message() const { return message_; }
  const std::string& context() const { return context_; }
  const std::string& remedy() const { return remedy_; }

  // Adds what the caller was doing, in front of what is already there.
  Error within(std::string_view doing) &&;
  // The same with another code, where a caller knows better what it means.
  Error as(ErrorCode code) &&;
  // Sets what the user can do; the innermost one is the most precise and stays.
  Error remedy(std::string_view advice) &&;

  // "context : message", or the message alone; the remedy is for the caller to place.
  std::string text() const;

  friend bool operator==(const Error&, const Error&) = default;

 private:
  ErrorCode code_;
  std::string message_;
  std::string context_;
  std::string remedy_;
};

inline Error invalid(std::string message) { return {ErrorCode::invalid, std::move(message)}; }
inline Error failed(std::string message) { return {ErrorCode::failed, std::move(message)}; }
inline Error forbidden(std::string message) { return {ErrorCode::forbidden, std::move(message)}; }
inline Error unknown(std::string message) { return {ErrorCode::unknown, std::move(message)}; }
inline Error damaged(std::string message) { return {ErrorCode::damaged, std::move(message)}; }

// The fields of `errno`: "what: No such file or directory".
Error failed_errno(std::string_view what, int error_number);

// A T or an Error. Reading the side that is not there is a bug, and is checked.
template <class T = void>
class [[nodiscard]] Result {
 public:
  // Implicit on purpose: `return value;` and `return error;` are the two ways out of a function.
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & { return TUTTI_CHECK(ok(), "value() of a failed result"), *std::get_if<0>(&state_); }
  const T& value() const& {
    return TUTTI_CHECK(ok(), "value() of a failed result"), *std::get_if<0>(&state_);
  }
  T&& value() && {
    return TUTTI_CHECK(ok(), "value() of a failed result"), std::move(*std::get_if<0>(&state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  T value_or(T other) && { return ok() ? std::move(*this).value() : std::move(other); }

  const Error& error() const& {
    return TUTTI_CHECK(!ok(), "error() of a result that is fine"), *std::get_if<1>(&state_);
  }
  Error&& error() && {
    return TUTTI_CHECK(!ok(), "error() of a result that is fine"), std::move(*std::get_if<1>(&state_));
  }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : state_(std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  const Error& error() const& {
    return TUTTI_CHECK(!ok(), "error() of a result that is fine"), *std::get_if<1>(&state_);
  }
  Error&& error() && {
    return TUTTI_CHECK(!ok(), "error() of a result that is fine"), std::move(*std::get_if<1>(&state_));
  }

 private:
  std::variant<std::monostate, Error> state_;
};

}  // namespace tutti
