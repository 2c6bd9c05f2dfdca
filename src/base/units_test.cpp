#include "base/units.hpp"

#include <type_traits>

#include <gtest/gtest.h>

namespace tutti {
namespace {

template <class A, class B>
concept Addable = requires(A a, B b) {
  a + b;
};
static_assert(Addable<Bytes, Bytes>);
static_assert(!Addable<Bytes, Power>);
static_assert(!std::is_convertible_v<std::int64_t, Bytes>);

TEST(Bytes, Parses) {
  EXPECT_EQ(*parse_bytes("512"), Bytes(512));
  EXPECT_EQ(*parse_bytes("64K"), kib(64));
  EXPECT_EQ(*parse_bytes("1.5GiB"), mib(1536));
  EXPECT_EQ(*parse_bytes("16G"), gib(16));
  EXPECT_EQ(*parse_bytes("16Gi"), gib(16));
  EXPECT_EQ(*parse_bytes("16GB"), Bytes(16'000'000'000));
  EXPECT_EQ(*parse_bytes("0B"), Bytes(0));
}

TEST(Bytes, RefusesWhatIsNoSize) {
  for (const char* text : {"", "G", "-1G", "1 G", "1g", "1GiBs", "1e9", "infG", "nan", "9000P", "0x10"}) {
    EXPECT_FALSE(parse_bytes(text).ok()) << "'" << text << "'";
  }
}

TEST(Bytes, FormatsForPeople) {
  EXPECT_EQ(format_bytes(Bytes(0)), "0 B");
  EXPECT_EQ(format_bytes(Bytes(512)), "512 B");
  EXPECT_EQ(format_bytes(Bytes(1000)), "0.98 KiB");
  EXPECT_EQ(format_bytes(mib(1536)), "1.5 GiB");
  EXPECT_EQ(format_bytes(gib(139)), "139 GiB");
  EXPECT_EQ(format_bytes(Bytes(0) - mib(3)), "-3 MiB");
}

TEST(Power, FormatsAndIntegrates) {
  EXPECT_EQ(format_power(watts(79)), "79 W");
  EXPECT_EQ(format_power(watts(1360)), "1.36 kW");
  EXPECT_EQ(format_power(watts(300'000'000)), "300 MW");
  EXPECT_EQ(energy(watts(700), 1h), Energy(2'520'000'000)) << "0.7 kWh";
}

}  // namespace
}  // namespace tutti
