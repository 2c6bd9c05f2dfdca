#include "serve/constrain/decimals.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <compare>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

namespace tutti::serve {
namespace {

// Decimals of so many digits are different doubles when they are different.
constexpr std::size_t digits_of_double = 15;
constexpr std::size_t fraction_digits_max = 18;

std::size_t whole_digits(const Bound& bound) { return std::to_string(bound.whole).size(); }

// Digits behind the point, where the bound itself must not be written.
std::size_t open_digits(const Bound& bound) {
  return digits_of_double - std::min(digits_of_double, whole_digits(bound));
}

// Without a look at who is open. Digits behind the point compare as texts do.
std::strong_ordering compare(const Bound& one, const Bound& other) {
  if (one.is_negative != other.is_negative)
    return one.is_negative ? std::strong_ordering::less : std::strong_ordering::greater;
  const auto size = [](const Bound& bound) { return std::tie(bound.whole, bound.fraction); };
  const auto order = size(one) <=> size(other);
  return one.is_negative ? 0 <=> order : order;
}

// The digits behind the point of a number whose digits before it are those of a bound, or of none. Built from
// its end, so that no way leads to nowhere.
class Fractions {
 public:
  Fractions(Grammar& grammar, NodeId end, std::size_t digits_max)
      : grammar_(grammar), end_(end), digits_max_(digits_max) {}

  // From behind the digits before the point; nothing if no number goes on like this. Null: not bounded.
  std::optional<NodeId> begin(const Bound* low, const Bound* high) {
    low_ = low;
    high_ = high;
    made_.clear();
    const bool may_end = ends(0, low != nullptr, high != nullptr);
    const auto first = digits(0, low != nullptr, high != nullptr);
    if (!may_end && !first) return std::nullopt;
    const NodeId node = grammar_.add();
    if (may_end) grammar_.skip(node, end_);
    if (first) grammar_.skip(grammar_.text(node, "."), *first);
    return node;
  }

 private:
  // The digits so far are those of the bound: with nothing but zeros behind them the number may be it.
  bool ends(std::size_t read, bool at_low, bool at_high) const {
    if (at_low && (read < low_->fraction.size() || low_->is_open)) return false;
    return !at_high || read < high_->fraction.size() || !high_->is_open;
  }
  static char digit(const Bound& bound, std::size_t place) {
    return place < bound.fraction.size() ? bound.fraction[place] : '0';
  }

  // Where the next digit is read; nothing if there is none that leads to the end.
  std::optional<NodeId> digits(std::size_t read, bool at_low, bool at_high) {
    if (read >= digits_max_) return std::nullopt;
    const auto known = made_.find({read, at_low, at_high});
    if (known != made_.end()) return known->second;
    const char least = at_low ? digit(*low_, read) : '0';
    const char most = at_high ? digit(*high_, read) : '9';
    std::optional<NodeId> node;
    const auto follow = [&](char first, char last, bool low_too, bool high_too) {
      const auto next = after(read + 1, low_too, high_too);
      if (first > last || !next) return;
      if (!node) node = grammar_.add();
      grammar_.edge(*node, static_cast<std::uint8_t>(first), static_cast<std::uint8_t>(last), *next);
    };
    if (at_low && at_high && least == most) {
      follow(least, least, true, true);
    } else if (least <= most) {
      if (at_low) follow(least, least, true, false);
      if (at_high) follow(most, most, false, true);
      follow(static_cast<char>(least + (at_low ? 1 : 0)), static_cast<char>(most - (at_high ? 1 : 0)), false,
             false);
    }
    made_[{read, at_low, at_high}] = node;
    return node;
  }
  // Behind a digit: the end, or another one.
  std::optional<NodeId> after(std::size_t read, bool at_low, bool at_high) {
    const bool may_end = ends(read, at_low, at_high);
    const auto more = digits(read, at_low, at_high);
    if (!may_end) return more;
    if (!more) return end_;
    const NodeId node = grammar_.add();
    grammar_.skip(node, end_);
    grammar_.skip(node, *more);
    return node;
  }

  Grammar& grammar_;
  const NodeId end_;
  const std::size_t digits_max_;
  const Bound* low_ = nullptr;
  const Bound* high_ = nullptr;
  std::map<std::tuple<std::size_t, bool, bool>, std::optional<NodeId>> made_;
};

// Sizes from one to the other, without a sign. Null: there is no largest.
bool add_sizes(Grammar& grammar, JsonParts& parts, NodeId from, const Bound& low, const Bound* high,
               std::size_t digits_max, NodeId end) {
  if (high != nullptr && high->whole < low.whole) return false;
  Fractions fractions(grammar, end, digits_max);
  bool is_any = false;
  const auto add = [&](std::int64_t whole, const Bound* least, const Bound* most) {
    const auto begin = fractions.begin(least, most);
    if (!begin) return;
    grammar.skip(grammar.text(from, std::to_string(whole)), *begin);
    is_any = true;
  };
  if (high != nullptr && high->whole == low.whole) {
    add(low.whole, &low, high);
    return is_any;
  }
  add(low.whole, &low, nullptr);
  if (high != nullptr) add(high->whole, nullptr, high);
  const std::int64_t last = high != nullptr ? high->whole - 1 : integer_max;
  if (low.whole + 1 <= last) {
    grammar.skip(parts.count_between(from, low.whole + 1, last), *fractions.begin(nullptr, nullptr));
    is_any = true;
  }
  return is_any;
}

}  // namespace

Result<std::optional<Bound>> read_bound(const json::Value& value, Side side, bool is_open) {
  const auto number = value.number();
  if (!number) return invalid("is a number");
  const auto whole = value.whole();
  const bool is_beyond = whole ? *whole > integer_max || *whole < -integer_max
                               : std::abs(*number) >= static_cast<double>(integer_max);
  if (is_beyond) {
    if ((*number < 0) == (side == Side::lower)) return std::optional<Bound>();
    return invalid("leaves no number of up to 18 digits");
  }
  std::array<char, 512> text{};  // the least double has some 340 digits
  char* const end = whole ? std::to_chars(text.begin(), text.end(), *whole).ptr
                          : std::to_chars(text.begin(), text.end(), *number, std::chars_format::fixed).ptr;
  std::string_view digits(text.data(), static_cast<std::size_t>(end - text.data()));
  Bound bound{.is_negative = digits.front() == '-', .fraction = "", .is_open = is_open};
  if (bound.is_negative) digits.remove_prefix(1);
  const std::string_view before = digits.substr(0, digits.find('.'));
  std::from_chars(before.data(), before.data() + before.size(), bound.whole);
  if (before.size() < digits.size()) bound.fraction = digits.substr(before.size() + 1);
  bound.fraction.erase(bound.fraction.find_last_not_of('0') + 1);
  if (bound.whole == 0 && bound.fraction.empty()) bound.is_negative = false;
  const bool is_double = !whole || static_cast<std::int64_t>(static_cast<double>(*whole)) == *whole;
  const std::size_t most = is_open ? open_digits(bound) : fraction_digits_max;
  if (!is_double || bound.fraction.size() > most || (is_open && whole_digits(bound) > digits_of_double))
    return invalid("has more digits than can be held exactly");
  return std::optional<Bound>(std::move(bound));
}

std::optional<Bound> tighter(std::optional<Bound> one, std::optional<Bound> other, Side side) {
  if (!one || !other) return one ? one : other;
  const auto order = compare(*one, *other);
  if (order == 0) return one->is_open ? one : other;
  return (order > 0) == (side == Side::lower) ? one : other;
}

std::optional<NodeId> add_number_between(Grammar& grammar, JsonParts& parts, NodeId from,
                                         const std::optional<Bound>& low, const std::optional<Bound>& high) {
  std::size_t digits_max = fraction_digits_max;
  for (const auto& bound : {low, high}) {
    if (bound && bound->is_open) digits_max = std::min(digits_max, open_digits(*bound));
  }
  const NodeId end = grammar.add();
  bool is_any = false;
  if (!high || !high->is_negative) {
    const Bound least = low && !low->is_negative ? *low : Bound{.fraction = ""};
    is_any = add_sizes(grammar, parts, from, least, high ? &*high : nullptr, digits_max, end);
  }
  if (!low || low->is_negative) {
    // No zero has a sign.
    const Bound least = high && high->is_negative ? *high : Bound{.fraction = "", .is_open = true};
    const NodeId behind_sign = grammar.add();
    if (add_sizes(grammar, parts, behind_sign, least, low ? &*low : nullptr, digits_max, end)) {
      grammar.edge(from, '-', '-', behind_sign);
      is_any = true;
    }
  }
  return is_any ? std::optional<NodeId>(end) : std::nullopt;
}

}  // namespace tutti::serve
