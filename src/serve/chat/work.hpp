// What the rendering of a template may cost, and what filters, tests, methods and functions share: the first
// mistake, after which nothing more is done. One thread at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "serve/chat/value.hpp"

namespace tutti::serve::chat {

constexpr std::size_t steps_max = 5'000'000;       // of one rendering
constexpr std::size_t bytes_a_step = 64;           // that are read or made
constexpr std::size_t keys_a_step = 16;            // of a map, that are looked at
constexpr std::size_t value_bytes_max = 32 << 20;  // a text, or a list with all that is in it
constexpr std::size_t value_depth_max = 100;
constexpr std::size_t output_bytes_max = 32 << 20;
constexpr std::size_t render_depth_max = 800;  // expressions, blocks and macros inside of one another
constexpr std::size_t range_max = 100'000;

// A date for templates that write one.
struct Moment {
  int year = 1970;
  int month = 1;
  int day = 1;
  int hour = 0;
  int minute = 0;
  int second = 0;
};

struct Arguments {
  std::vector<Value> values;
  std::vector<std::pair<std::string, Value>> named;

  // By place or by name; undefined if it was not given.
  Value get(std::size_t at, std::string_view name) const;
  bool has(std::size_t at, std::string_view name) const { return !get(at, name).is_undefined(); }
};

class Work {
 public:
  // It fails soon after it was abandoned.
  explicit Work(const Moment& now, std::stop_token abandoned = {})
      : now_(now), abandoned_(std::move(abandoned)) {}

  bool fine() const { return problem_.empty(); }
  const std::string& problem() const { return problem_; }
  std::size_t line() const { return line_; }
  void at_line(std::size_t line) {
    if (fine()) line_ = line;
  }
  // Gives undefined, so that it can be the answer of whoever fails.
  Value fail(std::string problem);
  // False, and a failure, once there were too many.
  bool step(std::size_t steps = 1);
  bool step_through(const Value& value) {
    return step(1 + (value.weight() < unbounded ? value.weight() / bytes_a_step : 0));
  }

  // Whether a value of so many bytes, or a list of so many elements, may be made: asked before it is, because
  // made() comes when the memory is taken. A failure if not.
  bool fits(std::size_t bytes);
  bool fits_elements(std::size_t count) { return fits(std::min(count, value_bytes_max) * sizeof(Value)); }

  // Values that were made here: within their bounds, and paid for.
  Value made(const Value& value);

  const Moment& now() const { return now_; }

 private:
  Moment now_;
  std::stop_token abandoned_;
  std::string problem_;
  std::size_t line_ = 0;
  std::size_t steps_ = 0;
};

// What they are given is read by methods and filters.
bool step_through(Work& work, const Arguments& arguments);

// Each fails by name if there is none such.
Value apply_filter(Work& work, std::string_view name, const Value& value, const Arguments& arguments);
bool apply_test(Work& work, std::string_view name, const Value& value, const Arguments& arguments);
Value call_method(Work& work, const Value& object, std::string_view name, const Arguments& arguments);
Value call_function(Work& work, std::string_view name, const Arguments& arguments);
// Undefined if there is none of this name.
Value find_function(std::string_view name);

// a + b and its like.
Value calculate(Work& work, std::string_view sign, const Value& a, const Value& b);
// a == b, a in b.
bool compares(Work& work, std::string_view sign, const Value& a, const Value& b);

// a.name and a[key]; undefined if there is none.
Value attribute_of(Work& work, const Value& value, std::string_view name);
Value item_of(Work& work, const Value& value, const Value& key);
Value slice_of(Work& work, const Value& value, const Value& from, const Value& to, const Value& step);
// The elements that a loop walks through.
Value elements_of(Work& work, const Value& value);
// How many elements or letters; fails if it has none.
std::int64_t length_of(Work& work, const Value& value);

std::string format_moment(const Moment& moment, std::string_view format);

}  // namespace tutti::serve::chat
