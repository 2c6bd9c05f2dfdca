#include "base/files/open_files.hpp"

#include <sys/resource.h>

#include <gtest/gtest.h>

namespace tutti::files {
namespace {

rlimit limit_now() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  return limit;
}

TEST(OpenFiles, AreRaisedToWhatTheSystemAllowsAndPutBackForOthers) {
  const rlimit was = limit_now();
  set_open_files(100);
  ASSERT_EQ(limit_now().rlim_cur, 100U);
  const OpenFiles raised = raise_open_files();
  EXPECT_EQ(raised.before, 100U);
  EXPECT_EQ(limit_now().rlim_cur, was.rlim_max);
  EXPECT_GE(raised.most, 100U);
  set_open_files(raised.before);
  EXPECT_EQ(limit_now().rlim_cur, 100U);
  EXPECT_EQ(limit_now().rlim_max, was.rlim_max) << "whoever wants more can still have it";
  set_open_files(0);
  EXPECT_EQ(limit_now().rlim_cur, 100U) << "nothing was said";
  setrlimit(RLIMIT_NOFILE, &was);
}

TEST(OpenFiles, ThatCanStillBeOpenedAreTried) {
  const rlimit was = limit_now();
  set_open_files(100);
  EXPECT_TRUE(can_open(8));
  EXPECT_FALSE(can_open(100)) << "some are open already";
  EXPECT_TRUE(can_open(8)) << "and nothing of it is left";
  setrlimit(RLIMIT_NOFILE, &was);
}

TEST(OpenFiles, SomeAreKeptForAllElse) {
  EXPECT_EQ(files_to_give(1'024), 768U);
  EXPECT_EQ(files_to_give(64), 32U) << "half, where there are few";
  EXPECT_EQ(files_to_give(0), 0U);
}

}  // namespace
}  // namespace tutti::files
