#include "base/time.hpp"

#include <gtest/gtest.h>

namespace tutti {
namespace {

TEST(Duration, Parses) {
  EXPECT_EQ(*parse_duration("90s"), 90s);
  EXPECT_EQ(*parse_duration("1h30m"), 90min);
  EXPECT_EQ(*parse_duration("1.5h"), 90min);
  EXPECT_EQ(*parse_duration("250ms"), 250ms);
  EXPECT_EQ(*parse_duration("2d"), 48h);
  EXPECT_EQ(*parse_duration("0s"), 0s);
}

TEST(Duration, RefusesWhatIsNoDuration) {
  for (const char* text : {"", "5", "s", "-5s", "5 s", "5s ", "30m1h", "1h1h", "5x", "1e3s", "infs", "nans",
                           ".5s", "999999999d"}) {
    EXPECT_FALSE(parse_duration(text).ok()) << "'" << text << "'";
  }
}

TEST(Duration, FormatsWhatItParses) {
  for (const char* text : {"0s", "1h30m", "250ms", "2d", "1d2h3m4s5ms6us7ns"}) {
    EXPECT_EQ(format_duration(*parse_duration(text)), text);
  }
  EXPECT_EQ(format_duration(-5s), "-5s");
  EXPECT_EQ(format_duration(Duration::min()), "-106751d23h47m16s854ms775us808ns");
}

TEST(Instant, FormatsAsRfc3339) {
  EXPECT_EQ(format_instant(Instant()), "1970-01-01T00:00:00.000Z");
  EXPECT_EQ(format_instant(Instant(1'700'000'000s + 42ms)), "2023-11-14T22:13:20.042Z");
  EXPECT_EQ(format_instant(Instant(-1ms)), "1969-12-31T23:59:59.999Z");
}

}  // namespace
}  // namespace tutti
