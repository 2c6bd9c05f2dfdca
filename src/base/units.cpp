#include "base/units.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>

namespace tutti {
namespace {

Error bad_bytes(std::string_view text) {
  return invalid("'" + std::string(text.substr(0, 64)) + "' is not a size")
      .remedy("write a number and a unit, such as 512M, 16G, 1.5GiB or 16GB");
}

// 0 for an unknown unit.
double bytes_per_unit(std::string_view unit) {
  constexpr std::string_view prefixes = "KMGTP";
  if (unit.empty() || unit == "B") return 1;
  const auto prefix = prefixes.find(unit.front());
  if (prefix == std::string_view::npos) return 0;
  const std::string_view tail = unit.substr(1);
  const int power = static_cast<int>(prefix) + 1;
  if (tail.empty() || tail == "iB" || tail == "i") return std::pow(1024.0, power);
  if (tail == "B") return std::pow(1000.0, power);
  return 0;
}

// Three significant digits, no trailing zeros after the point: 1.5, 139, 0.25.
std::string three_digits(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*f", value < 10 ? 2 : value < 100 ? 1 : 0, value);
  std::string result = text;
  if (result.find('.') != std::string::npos) {
    result.erase(result.find_last_not_of('0') + 1);
    if (result.back() == '.') result.pop_back();
  }
  return result;
}

template <std::size_t count>
std::string scaled(double value, double step, const std::array<const char*, count>& units) {
  const bool negative = value < 0;
  value = std::fabs(value);
  std::size_t unit = 0;
  // 999.5 and more would print as a fourth digit.
  while (value >= std::min(step, 999.5) && unit + 1 < count) {
    value /= step;
    ++unit;
  }
  return (negative ? "-" : "") + three_digits(value) + " " + units[unit];
}

}  // namespace

Energy energy(Power power, Duration duration) {
  const double seconds = std::chrono::duration<double>(duration).count();
  return Energy(std::llround(static_cast<double>(power.count()) * seconds));
}

Result<Bytes> parse_bytes(std::string_view text) {
  double number = 0;
  const char* end = text.data() + text.size();
  if (text.empty() || text.front() < '0' || text.front() > '9') return bad_bytes(text);
  const auto parsed = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  if (parsed.ec != std::errc()) return bad_bytes(text);
  const double scale =
      bytes_per_unit(std::string_view(parsed.ptr, static_cast<std::size_t>(end - parsed.ptr)));
  if (scale == 0) return bad_bytes(text);
  const double bytes = number * scale;
  if (!(bytes < 9.2e18)) return bad_bytes(text).remedy("sizes end at 8 EiB");
  return Bytes(std::llround(bytes));
}

std::string format_bytes(Bytes bytes) {
  return scaled(static_cast<double>(bytes.count()), 1024,
                std::array{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"});
}

std::string format_power(Power power) {
  return scaled(static_cast<double>(power.count()) / 1000, 1000, std::array{"W", "kW", "MW", "GW"});
}

}  // namespace tutti
