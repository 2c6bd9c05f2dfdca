#include "cli/model_flags.hpp"

#include <gtest/gtest.h>

namespace tutti::cli {
namespace {

Result<ModelFlags::Chosen> chosen(const std::vector<std::string>& words) {
  ModelFlags model;
  config::Flags flags("engine", "", "");
  model.declare(flags);
  if (auto parsed = flags.parse(words); !parsed) return std::move(parsed).error();
  return model.choose();
}

// What a device would refuse is not asked of it.
TEST(ModelFlags, AStepHasNoMoreRowsThanTokens) {
  for (const std::string device : {"cpu", "cuda"}) {
    for (const std::string sequences : {"1", "64", "256", "4096"}) {
      for (const std::string drafts : {"0", "1", "8", "16"}) {
        const auto made = chosen({"--device", device, "--sequences", sequences, "--drafts", drafts});
        ASSERT_TRUE(made) << made.error().text();
        const serve::LoadOptions& load = made->load;
        EXPECT_LE(load.step_rows_max, load.step_tokens_max) << device << " " << sequences << " " << drafts;
        EXPECT_GE(load.step_rows_max, made->batch.sequences_max) << "each that runs has a row";
        EXPECT_LE(made->batch.sequences_max, serve::sequences_most(load.step_tokens_max));
      }
    }
  }
  EXPECT_EQ(chosen({"--device", "cuda", "--drafts", "8"})->batch.sequences_max, 256);
  EXPECT_EQ(chosen({"--device", "cpu", "--sequences", "1000"})->batch.sequences_max, 256);
}

}  // namespace
}  // namespace tutti::cli
