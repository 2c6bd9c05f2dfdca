#include "base/hash/hash.hpp"

#include <algorithm>
#include <array>

#include "base/bytes.hpp"
#include "base/hash/kernels.hpp"
#include "base/hash/mix.hpp"
#include "base/hash/short_input.hpp"

namespace tutti {
namespace {

using namespace hashing;

// Where the sums of the two halves meet the secret.
constexpr std::size_t low_merge_offset = 11;
constexpr std::size_t high_merge_offset = secret_bytes - stripe_bytes - 11;

constexpr Sums first_sums{
    {prime32_3, prime64_1, prime64_2, prime64_3, prime64_4, prime32_2, prime64_5, prime32_1}, 0};

Secret secret_of(std::uint64_t seed) {
  Secret secret = default_secret;
  for (std::size_t at = 0; at < secret.size(); at += 8) {
    const std::uint64_t word = read64(secret.data() + at);
    const std::uint64_t seeded = at % 16 == 0 ? word + seed : word - seed;
    std::memcpy(secret.data() + at, &seeded, sizeof seeded);
  }
  return secret;
}

// The last stripe is the last 64 bytes, and what lies before it in whole stripes comes first.
Sums sums_of(std::span<const std::byte> bytes, const Secret& secret) {
  Sums sums = first_sums;
  take_stripes(sums, bytes.data(), (bytes.size() - 1) / stripe_bytes, secret.data());
  take_last_stripe(sums, bytes.data() + bytes.size() - stripe_bytes, secret.data());
  return sums;
}

std::uint64_t merged(const Sums& sums, const std::byte* secret, std::uint64_t start) {
  for (std::size_t lane = 0; lane < sums.lanes.size(); lane += 2) {
    start += multiply_and_fold(sums.lanes[lane] ^ read64(secret + 8 * lane),
                               sums.lanes[lane + 1] ^ read64(secret + 8 * lane + 8));
  }
  return avalanche(start);
}

Hash128 merged128(const Sums& sums, std::uint64_t size) {
  return {.high = merged(sums, default_secret.data() + high_merge_offset, ~(size * prime64_2)),
          .low = merged(sums, default_secret.data() + low_merge_offset, size * prime64_1)};
}

}  // namespace

std::string Hash128::hex() const {
  std::array<std::byte, 16> bytes;
  for (unsigned at = 0; at < 8; ++at) {
    bytes[at] = static_cast<std::byte>(high >> (56 - 8 * at));
    bytes[8 + at] = static_cast<std::byte>(low >> (56 - 8 * at));
  }
  return to_hex(bytes);
}

std::uint64_t hash64(std::span<const std::byte> bytes, std::uint64_t seed) {
  if (bytes.size() <= short_bytes_max) return short_hash64(bytes, seed);
  const auto with = [&](const Secret& secret) {
    return merged(sums_of(bytes, secret), secret.data() + low_merge_offset, bytes.size() * prime64_1);
  };
  return seed == 0 ? with(default_secret) : with(secret_of(seed));
}

Hash128 hash128(std::span<const std::byte> bytes) {
  if (bytes.size() <= short_bytes_max) return short_hash128(bytes);
  return merged128(sums_of(bytes, default_secret), bytes.size());
}

// The newest bytes stay back, because which of them are the last stripe is known only at the end. Short
// inputs stay back whole.
struct Hasher::State {
  static constexpr std::size_t held_max = 4 * stripe_bytes;
  static_assert(held_max >= short_bytes_max);

  Sums sums = first_sums;
  std::array<std::byte, held_max> held{};
  std::array<std::byte, stripe_bytes> taken_last{};  // the stripe before those held, once there is one
  std::size_t held_bytes = 0;
  std::uint64_t size = 0;

  void hold(std::span<const std::byte> bytes) {
    std::copy(bytes.begin(), bytes.end(), held.begin() + static_cast<std::ptrdiff_t>(held_bytes));
    held_bytes += bytes.size();
  }
  void take(const std::byte* input, std::size_t stripes) {
    take_stripes(sums, input, stripes, default_secret.data());
    std::copy_n(input + (stripes - 1) * stripe_bytes, stripe_bytes, taken_last.begin());
  }
};

Hasher::Hasher() : state_(std::make_unique<State>()) {}
Hasher::Hasher(Hasher&&) noexcept = default;
Hasher& Hasher::operator=(Hasher&&) noexcept = default;
Hasher::~Hasher() = default;

void Hasher::update(std::span<const std::byte> bytes) {
  State& state = *state_;
  state.size += bytes.size();
  const std::size_t room = State::held_max - state.held_bytes;
  if (bytes.size() <= room) return state.hold(bytes);
  if (state.held_bytes > 0) {
    state.hold(bytes.first(room));
    bytes = bytes.subspan(room);
    state.take(state.held.data(), State::held_max / stripe_bytes);
    state.held_bytes = 0;
  }
  if (bytes.size() > State::held_max) {
    const std::size_t stripes = (bytes.size() - 1) / stripe_bytes;
    state.take(bytes.data(), stripes);
    bytes = bytes.subspan(stripes * stripe_bytes);
  }
  state.hold(bytes);
}

Hash128 Hasher::digest() const {
  const State& state = *state_;
  const auto held = std::span(state.held).first(state.held_bytes);
  if (state.size <= short_bytes_max) return short_hash128(held);
  Sums sums = state.sums;
  if (held.size() >= stripe_bytes) {
    take_stripes(sums, held.data(), (held.size() - 1) / stripe_bytes, default_secret.data());
    take_last_stripe(sums, held.data() + held.size() - stripe_bytes, default_secret.data());
  } else {
    std::array<std::byte, stripe_bytes> last;
    const auto older = std::span(state.taken_last).subspan(held.size());
    std::copy(held.begin(), held.end(), std::copy(older.begin(), older.end(), last.begin()));
    take_last_stripe(sums, last.data(), default_secret.data());
  }
  return merged128(sums, state.size);
}

}  // namespace tutti
