#include "comm/proof.hpp"

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <random>

#include "comm/frame.hpp"

namespace tutti::comm {
namespace {

constexpr std::size_t block_bytes = 64;
constexpr std::size_t fresh_numbers = 4;

// FIPS 180-4, 4.2.2 and 5.3.3: of the first primes, the fractions of their cube and square roots.
constexpr std::array<std::uint32_t, 64> round_constants = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};
constexpr std::array<std::uint32_t, 8> first_state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

std::uint32_t byte_at(std::string_view bytes, std::size_t at) {
  return static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[at]));
}

void take_block(std::array<std::uint32_t, 8>& state, std::string_view block) {
  std::array<std::uint32_t, 64> words{};
  for (std::size_t i = 0; i < 16; ++i)
    words[i] = byte_at(block, 4 * i) << 24U | byte_at(block, 4 * i + 1) << 16U |
               byte_at(block, 4 * i + 2) << 8U | byte_at(block, 4 * i + 3);
  for (std::size_t i = 16; i < 64; ++i) {
    const std::uint32_t a = words[i - 15];
    const std::uint32_t b = words[i - 2];
    words[i] = words[i - 16] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ a >> 3U) + words[i - 7] +
               (std::rotr(b, 17) ^ std::rotr(b, 19) ^ b >> 10U);
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (std::size_t i = 0; i < 64; ++i) {
    const std::uint32_t one = h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) +
                              ((e & f) ^ (~e & g)) + round_constants[i] + words[i];
    const std::uint32_t two =
        (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g;
    g = f;
    f = e;
    e = d + one;
    d = c;
    c = b;
    b = a;
    a = one + two;
  }
  const std::array<std::uint32_t, 8> more = {a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < state.size(); ++i) state[i] += more[i];
}

template <class Number>
void append_big_endian(std::string& bytes, Number number) {
  for (std::size_t shift = 8 * sizeof number; shift > 0; shift -= 8)
    bytes += static_cast<char>(number >> (shift - 8) & 0xffU);
}

std::string words_of(std::string_view who, const Introduction& introduction) {
  Writer words;
  words.text(who).text(introduction.hubs).text(introduction.ranks);
  words.number(static_cast<std::int32_t>(introduction.rank));
  words.number(static_cast<std::int32_t>(introduction.size)).text(introduction.node);
  return words.take();
}

}  // namespace

std::string sha256(std::string_view bytes) {
  std::string padded(bytes);
  padded += '\x80';
  while (padded.size() % block_bytes != block_bytes - sizeof(std::uint64_t)) padded += '\0';
  append_big_endian(padded, std::uint64_t{bytes.size()} * 8);
  auto state = first_state;
  for (std::size_t at = 0; at < padded.size(); at += block_bytes)
    take_block(state, std::string_view(padded).substr(at, block_bytes));
  std::string digest;
  for (const std::uint32_t word : state) append_big_endian(digest, word);
  return digest;
}

std::string keyed_hash(std::string_view key, std::string_view bytes) {
  std::string block = key.size() > block_bytes ? sha256(key) : std::string(key);
  block.resize(block_bytes, '\0');
  std::string inner = block;
  std::string outer = block;
  for (char& letter : inner) letter = static_cast<char>(letter ^ 0x36);
  for (char& letter : outer) letter = static_cast<char>(letter ^ 0x5c);
  return sha256(outer + sha256(inner.append(bytes)));
}

bool is_same_secret(std::string_view mine, std::string_view told) {
  if (mine.size() != told.size()) return false;
  unsigned differs = 0;
  for (std::size_t at = 0; at < mine.size(); ++at) differs |= byte_at(mine, at) ^ byte_at(told, at);
  return differs == 0;
}

std::string fresh_bytes() {
  std::random_device random;
  Writer bytes;
  for (std::size_t i = 0; i < fresh_numbers; ++i) bytes.number(static_cast<std::uint32_t>(random()));
  return bytes.take();
}

std::string proof_of_rank(std::string_view secret, const Introduction& introduction) {
  return keyed_hash(secret, words_of("rank", introduction));
}

std::string proof_of_hub(std::string_view secret, const Introduction& introduction) {
  return keyed_hash(secret, words_of("hub", introduction));
}

}  // namespace tutti::comm
