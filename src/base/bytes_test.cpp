#include "base/bytes.hpp"

#include <gtest/gtest.h>

namespace tutti {
namespace {

TEST(Hex, ThereAndBack) {
  const std::string raw("\x00\x7f\xff tutti", 9);
  EXPECT_EQ(to_hex(as_bytes(raw)), "007fff207475747469");
  const auto bytes = from_hex("007FFF207475747469");
  ASSERT_TRUE(bytes.ok());
  EXPECT_EQ(to_hex(*bytes), to_hex(as_bytes(raw)));
  EXPECT_EQ(to_hex({}), "");
}

TEST(Hex, RefusesOtherText) {
  for (const char* text : {"0", "0g", "g0", "-1", "+1", " 1", "0x"})
    EXPECT_FALSE(from_hex(text).ok()) << text;
}

}  // namespace
}  // namespace tutti
