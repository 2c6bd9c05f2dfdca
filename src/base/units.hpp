// Amounts with their unit in the type: bytes, power and energy cannot be mixed up or added to one another.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "base/time.hpp"

namespace tutti {

template <class Tag>
class Quantity {
 public:
  constexpr Quantity() = default;
  constexpr explicit Quantity(std::int64_t count) : count_(count) {}

  constexpr std::int64_t count() const { return count_; }

  friend constexpr auto operator<=>(Quantity, Quantity) = default;
  friend constexpr Quantity operator+(Quantity a, Quantity b) { return Quantity(a.count_ + b.count_); }
  friend constexpr Quantity operator-(Quantity a, Quantity b) { return Quantity(a.count_ - b.count_); }
  friend constexpr Quantity operator*(Quantity a, std::int64_t times) { return Quantity(a.count_ * times); }
  constexpr Quantity& operator+=(Quantity other) { return *this = *this + other; }
  constexpr Quantity& operator-=(Quantity other) { return *this = *this - other; }

 private:
  std::int64_t count_ = 0;
};

using Bytes = Quantity<struct BytesTag>;
using Power = Quantity<struct PowerTag>;    // milliwatts, as NVML reports them
using Energy = Quantity<struct EnergyTag>;  // millijoules, as NVML counts them

constexpr Bytes kib(std::int64_t count) { return Bytes(count << 10); }
constexpr Bytes mib(std::int64_t count) { return Bytes(count << 20); }
constexpr Bytes gib(std::int64_t count) { return Bytes(count << 30); }
constexpr Power watts(std::int64_t count) { return Power(count * 1000); }

// The energy that constant power delivers over a span of time.
Energy energy(Power power, Duration duration);

// "512", "64K", "16G", "16GiB" count in powers of 1024; "16GB" in powers of 1000. Never negative.
Result<Bytes> parse_bytes(std::string_view text);

// For people, three digits at most: "512 B", "1.5 GiB", "139 GiB".
std::string format_bytes(Bytes bytes);

// For people: "79 W", "1.36 kW", "300 MW".
std::string format_power(Power power);

}  // namespace tutti
