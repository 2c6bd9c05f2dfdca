#include <cstdint>

#include "base/hash/mix.hpp"

namespace tutti::hashing {
namespace {

// As the specification prints it, eight bytes a number.
constexpr std::array<std::uint64_t, secret_bytes / 8> printed{
    0xb8fe6c3923a44bbe, 0x7c01812cf721ad1c, 0xded46de9839097db, 0x7240a4a4b7b3671f, 0xcb79e64eccc0e578,
    0x825ad07dccff7221, 0xb8084674f743248e, 0xe03590e6813a264c, 0x3c2852bb91c300cb, 0x88d0658b1b532ea3,
    0x71644897a20df94e, 0x3819ef46a9deacd8, 0xa8fa763fe39c343f, 0xf9dcbbc7c70b4f1d, 0x8a51e04bcdb45931,
    0xc89f7ec9d9787364, 0xeac5ac8334d3ebc3, 0xc581a0fffa1363eb, 0x170ddd51b7f0da49, 0xd316552629d4689e,
    0x2b16be587d47a1fc, 0x8ff8b8d17ad031ce, 0x45cb3a8f95160428, 0xafd7fbcabb4b407e,
};

constexpr Secret as_bytes_of(const std::array<std::uint64_t, secret_bytes / 8>& words) {
  Secret secret{};
  for (std::size_t at = 0; at < secret.size(); ++at)
    secret[at] = static_cast<std::byte>(words[at / 8] >> (56 - at % 8 * 8));
  return secret;
}

}  // namespace

constexpr Secret default_secret = as_bytes_of(printed);

}  // namespace tutti::hashing
