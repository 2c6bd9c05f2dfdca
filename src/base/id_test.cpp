#include "base/id.hpp"

#include <set>
#include <type_traits>

#include <gtest/gtest.h>

namespace tutti {
namespace {

using JobId = Id<struct JobTag>;
using NodeId = Id<struct NodeTag>;

static_assert(!std::is_convertible_v<JobId, NodeId>);
static_assert(!std::is_convertible_v<std::uint64_t, JobId>);

TEST(Id, OrdersByNumber) {
  const std::set<JobId> ids{JobId(3), JobId(1), JobId(2)};
  EXPECT_EQ(ids.begin()->number(), 1U);
  EXPECT_EQ(ids.rbegin()->text(), "3");
}

TEST(Id, ParsesWhatItPrints) {
  const JobId largest(~std::uint64_t{0});
  EXPECT_EQ(*parse_id<JobTag>(largest.text()), largest);
  EXPECT_EQ(*parse_id<JobTag>("0"), JobId(0));
}

TEST(Id, RefusesEverythingElse) {
  for (const char* text : {"", "-1", "+1", " 1", "1 ", "007", "0x10", "1.0", "18446744073709551616", "job"}) {
    EXPECT_FALSE(parse_id<JobTag>(text).ok()) << "'" << text << "'";
  }
}

}  // namespace
}  // namespace tutti
