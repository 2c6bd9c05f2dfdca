#include "learn/train/capability.hpp"

#include <gtest/gtest.h>

#include "base/exit_codes.hpp"
#include "learn/train/leave.hpp"

namespace tutti::train {
namespace {

TEST(Capability, GpusFromAmpereOnTrain) {
  EXPECT_TRUE(check_capability("NVIDIA A100-SXM4-80GB", 8, 0));
  EXPECT_TRUE(check_capability("NVIDIA L40S", 8, 9));
  EXPECT_TRUE(check_capability("NVIDIA H200", 9, 0));
  EXPECT_TRUE(check_capability("NVIDIA B200", 10, 0));
  EXPECT_TRUE(check_device(-1)) << "so do hosts";
}

TEST(Capability, OlderOnesAreRefusedByNameAndForGood) {
  const auto refused = check_capability("Tesla T4", 7, 5);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().text(),
            "Tesla T4 has compute capability 7.5, and GPUs train from 8.0 (Ampere) on");
  EXPECT_NE(refused.error().remedy(), "");
  EXPECT_EQ(exit_code_of(refused.error()), exit_final);
  EXPECT_FALSE(check_capability("Tesla V100-SXM2-16GB", 7, 0));
  EXPECT_FALSE(check_capability("Tesla P100-PCIE-16GB", 6, 0));
}

}  // namespace
}  // namespace tutti::train
