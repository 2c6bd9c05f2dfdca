#include "serve/chat/work.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

#include "serve/chat/letters.hpp"

namespace tutti::serve::chat {
namespace {

constexpr std::size_t problem_bytes_max = 1000;

std::string both_kinds(const Value& a, const Value& b) {
  return std::string(a.kind()) + " and " + std::string(b.kind());
}

std::optional<std::int64_t> as_whole(const Value& value) {
  if (value.whole() != nullptr) return *value.whole();
  if (value.boolean() != nullptr) return *value.boolean() ? 1 : 0;
  return std::nullopt;
}

std::int64_t floored(std::int64_t a, std::int64_t b) {
  const std::int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

Value whole_result(Work& work, std::string_view sign, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  bool overflow = false;
  if (sign == "+") {
    overflow = __builtin_add_overflow(a, b, &result);
  } else if (sign == "-") {
    overflow = __builtin_sub_overflow(a, b, &result);
  } else if (sign == "*") {
    overflow = __builtin_mul_overflow(a, b, &result);
  } else if (b == 0) {
    return work.fail("a number is divided by zero");
  } else if (b == -1) {  // the one division that can overflow
    overflow = __builtin_sub_overflow(std::int64_t{0}, a, &result);
    if (sign == "%") return 0;
  } else {
    result = sign == "//" ? floored(a, b) : a - floored(a, b) * b;
  }
  return overflow ? work.fail("a number is out of range") : Value(result);
}

Value number_result(Work& work, std::string_view sign, double a, double b) {
  if (sign == "+") return a + b;
  if (sign == "-") return a - b;
  if (sign == "*") return a * b;
  if (sign == "**") return std::pow(a, b);
  if (b == 0) return work.fail("a number is divided by zero");
  if (sign == "/") return a / b;
  return sign == "//" ? std::floor(a / b) : a - std::floor(a / b) * b;
}

Value power_result(Work& work, std::int64_t a, std::int64_t b) {
  static constexpr double exact_max = 9007199254740992;  // 2^53
  const double result = std::pow(static_cast<double>(a), static_cast<double>(b));
  if (b < 0) return result;
  if (std::abs(result) > exact_max) return work.fail("a number is out of range");
  return static_cast<std::int64_t>(result);
}

Value repeated(Work& work, const Value& what, std::int64_t times) {
  const std::size_t count = times < 0 ? 0 : static_cast<std::size_t>(times);
  const std::size_t bytes = what.text() != nullptr ? what.text()->size() : what.weight();
  if (bytes == 0) return std::string();  // however often
  if (!work.fits(count > value_bytes_max ? count : count * bytes)) return {};
  if (what.text() != nullptr) {
    std::string text;
    for (std::size_t at = 0; at < count; ++at) text += *what.text();
    return work.made(std::move(text));
  }
  List list;
  for (std::size_t at = 0; at < count; ++at)
    list.insert(list.end(), what.list()->begin(), what.list()->end());
  return work.made(std::move(list));
}

Value added(Work& work, const Value& a, const Value& b) {
  if (!work.fits(std::max(a.weight(), b.weight()) >= unbounded ? 0 : a.weight() + b.weight())) return {};
  if (a.text() != nullptr && b.text() != nullptr) return work.made(*a.text() + *b.text());
  if (a.list() != nullptr && b.list() != nullptr) {
    List list = *a.list();
    list.insert(list.end(), b.list()->begin(), b.list()->end());
    return work.made(std::move(list));
  }
  return work.fail("'+' of " + both_kinds(a, b));
}

bool contains(Work& work, const Value& whole, const Value& part) {
  if (whole.text() != nullptr && part.text() != nullptr)
    return find_text(*whole.text(), *part.text()) != std::string::npos;
  if (const List* list = whole.list())
    return std::any_of(list->begin(), list->end(), [&](const Value& each) { return equal(each, part); });
  if (whole.map() != nullptr) return part.text() != nullptr && whole.find(*part.text()) != nullptr;
  if (!whole.is_undefined()) work.fail("'in' of " + both_kinds(part, whole));
  return false;
}

Value loop_attribute(const Loop& loop, std::string_view name) {
  const List& items = loop.items->items;
  const std::size_t size = items.size();
  if (name == "index") return loop.at + 1;
  if (name == "index0") return loop.at;
  if (name == "revindex") return size - loop.at;
  if (name == "revindex0") return size - loop.at - 1;
  if (name == "first") return loop.at == 0;
  if (name == "last") return loop.at + 1 == size;
  if (name == "length") return size;
  if (name == "depth") return 1;  // only what is recursive has more
  if (name == "depth0") return 0;
  if (name == "previtem" && loop.at > 0) return items[loop.at - 1];
  if (name == "nextitem" && loop.at + 1 < size) return items[loop.at + 1];
  return Value(Undefined{"loop." + std::string(name)});
}

}  // namespace

Value Arguments::get(std::size_t at, std::string_view name) const {
  if (at < values.size()) return values[at];
  const auto found =
      std::find_if(named.begin(), named.end(), [&](const auto& each) { return each.first == name; });
  return found == named.end() ? Value() : found->second;
}

Value Work::fail(std::string problem) {
  if (problem.size() > problem_bytes_max) problem.resize(problem_bytes_max);
  if (problem_.empty()) problem_ = std::move(problem);
  return {};
}

bool step_through(Work& work, const Arguments& arguments) {
  return std::all_of(arguments.values.begin(), arguments.values.end(),
                     [&](const Value& each) { return work.step_through(each); }) &&
         std::all_of(arguments.named.begin(), arguments.named.end(),
                     [&](const auto& each) { return work.step_through(each.second); });
}

bool Work::step(std::size_t steps) {
  if (!fine()) return false;
  if (abandoned_.stop_requested()) fail("nobody waits for this any more");
  steps_ += std::min(steps, steps_max + 1);
  if (steps_ > steps_max) fail("it takes more than " + std::to_string(steps_max) + " steps");
  return fine();
}

bool Work::fits(std::size_t bytes) {
  if (bytes > value_bytes_max) fail("a value is larger than " + std::to_string(value_bytes_max) + " bytes");
  return fine();
}

Value Work::made(const Value& value) {
  if (value.weight() >= unbounded) return fail("a namespace or a loop cannot be kept in a list or a map");
  if (!fits(value.weight())) return {};
  if (value.depth() > value_depth_max)
    return fail("a value is nested more than " + std::to_string(value_depth_max) + " deep");
  return step_through(value) ? value : Value();
}

Value calculate(Work& work, std::string_view sign, const Value& a, const Value& b) {
  if (!work.step_through(a) || !work.step_through(b)) return {};
  if (sign == "~") return work.made(to_text(a) + to_text(b));
  const auto whole_a = as_whole(a);
  const auto whole_b = as_whole(b);
  if (whole_a && whole_b && sign == "**") return power_result(work, *whole_a, *whole_b);
  if (whole_a && whole_b && sign != "/") return whole_result(work, sign, *whole_a, *whole_b);
  if (a.is_number() && b.is_number()) return number_result(work, sign, as_number(a), as_number(b));
  if (sign == "+") return added(work, a, b);
  const bool many_a = a.text() != nullptr || a.list() != nullptr;
  const bool many_b = b.text() != nullptr || b.list() != nullptr;
  if (sign == "*" && many_a && whole_b) return repeated(work, a, *whole_b);
  if (sign == "*" && many_b && whole_a) return repeated(work, b, *whole_a);
  return work.fail("'" + std::string(sign) + "' of " + both_kinds(a, b));
}

bool compares(Work& work, std::string_view sign, const Value& a, const Value& b) {
  if (!work.step_through(a) || !work.step_through(b)) return false;
  if (sign == "==") return equal(a, b);
  if (sign == "!=") return !equal(a, b);
  if (sign == "in") return contains(work, b, a);
  if (sign == "not in") return !contains(work, b, a);
  if (!comparable(a, b)) {
    work.fail("'" + std::string(sign) + "' of " + both_kinds(a, b));
    return false;
  }
  const int order = compare(a, b);
  if (sign == "<") return order < 0;
  if (sign == "<=") return order <= 0;
  return sign == ">" ? order > 0 : order >= 0;
}

Value attribute_of(Work& work, const Value& value, std::string_view name) {
  if (const Undefined* undefined = value.undefined())
    return work.fail("'" + undefined->name + "' is undefined, and its '" + std::string(name) +
                     "' is asked for");
  if (value.loop() != nullptr) return loop_attribute(*value.loop(), name);
  if (value.map() != nullptr && !work.step(value.map()->size() / keys_a_step)) return {};
  if (const Variables* space = value.space()) {
    const auto found = space->find(name);
    if (found != space->end()) return found->second;
  } else if (const Value* found = value.find(name)) {
    return *found;
  }
  return Value(Undefined{std::string(name)});
}

Value item_of(Work& work, const Value& value, const Value& key) {
  if (!work.step_through(key)) return {};
  if (key.text() != nullptr) return attribute_of(work, value, *key.text());
  if (value.undefined() != nullptr) return attribute_of(work, value, to_repr(key));
  const auto at = as_whole(key);
  if (!at || (value.list() == nullptr && value.text() == nullptr)) return Value(Undefined{to_repr(key)});
  if (!work.step(value.text() == nullptr ? 1 : 1 + value.weight() / bytes_a_step)) return {};
  const std::int64_t size = length_of(work, value);
  const std::int64_t place = *at < 0 ? *at + size : *at;
  if (place < 0 || place >= size) return Value(Undefined{"[" + std::to_string(*at) + "]"});
  const auto index = static_cast<std::size_t>(place);
  return value.list() != nullptr ? (*value.list())[index] : Value(letter_at(*value.text(), index));
}

Value slice_of(Work& work, const Value& value, const Value& from, const Value& to, const Value& step) {
  if (!work.step_through(value)) return {};
  if (value.list() == nullptr && value.text() == nullptr)
    return work.fail("a slice of " + std::string(value.kind()));
  const std::int64_t size = length_of(work, value);
  const std::int64_t stride = as_whole(step).value_or(1);
  if (stride == 0) return work.fail("the step of a slice is zero");
  // Where Python begins and ends: inside of the list, or just outside of it.
  const std::int64_t lowest = stride < 0 ? -1 : 0;
  const std::int64_t highest = stride < 0 ? size - 1 : size;
  const auto placed = [&](const Value& given, std::int64_t otherwise) {
    const auto at = as_whole(given);
    if (!at) return otherwise;
    return std::clamp(*at < 0 ? std::max(*at, -size - 1) + size : std::min(*at, size), lowest, highest);
  };
  const std::int64_t begin = placed(from, stride < 0 ? highest : lowest);
  const std::int64_t end = placed(to, stride < 0 ? lowest : highest);
  const bool of_text = value.text() != nullptr;
  // Texts of which nothing is left out of order are cut in one piece; the letters of others weigh more than
  // they do.
  if (of_text && stride == 1) {
    const std::string_view rest = from_letter(*value.text(), static_cast<std::size_t>(begin));
    const auto count = static_cast<std::size_t>(std::max<std::int64_t>(end - begin, 0));
    return work.made(std::string(rest.substr(0, rest.size() - from_letter(rest, count).size())));
  }
  if (of_text && !work.fits_elements(static_cast<std::size_t>(size))) return {};
  const auto letters = of_text ? to_letters(*value.text()) : std::vector<std::string_view>();
  List list;
  std::string text;
  for (std::int64_t at = begin; stride < 0 ? at > end : at < end;) {
    const auto index = static_cast<std::size_t>(at);
    if (of_text) {
      text += letters[index];
    } else {
      list.push_back((*value.list())[index]);
    }
    if (__builtin_add_overflow(at, stride, &at)) break;
  }
  return of_text ? work.made(std::move(text)) : work.made(std::move(list));
}

Value elements_of(Work& work, const Value& value) {
  if (value.list() != nullptr) return value;
  if (!work.step_through(value)) return {};
  List elements;
  if (const Map* map = value.map()) {
    for (const auto& [key, each] : *map) elements.emplace_back(key);
  } else if (value.text() != nullptr) {
    if (!work.step(value.text()->size()) || !work.fits_elements(count_letters(*value.text()))) return {};
    for (const std::string_view letter : to_letters(*value.text())) elements.emplace_back(letter);
  } else if (!value.is_undefined()) {
    return work.fail(std::string(value.kind()) + " has no elements");
  }
  return work.made(std::move(elements));
}

std::int64_t length_of(Work& work, const Value& value) {
  if (value.list() != nullptr) return std::ssize(*value.list());
  if (value.map() != nullptr) return std::ssize(*value.map());
  if (value.text() != nullptr) return static_cast<std::int64_t>(count_letters(*value.text()));
  if (!value.is_undefined()) work.fail(std::string(value.kind()) + " has no length");
  return 0;
}

}  // namespace tutti::serve::chat
