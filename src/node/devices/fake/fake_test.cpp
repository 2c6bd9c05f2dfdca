#include "node/devices/fake/fake.hpp"

#include <gtest/gtest.h>

namespace tutti::devices {
namespace {

TEST(Fake, GivesTheDevicesThatWereAskedFor) {
  const auto inventory = fake_inventory("8xH100");
  ASSERT_TRUE(inventory);
  ASSERT_EQ(inventory->devices.size(), 8U);
  EXPECT_EQ(inventory->devices[7].model, "H100");
  EXPECT_EQ(inventory->devices[7].memory, gib(80));
  EXPECT_EQ(inventory->devices[7].uuid, "FAKE-7");
  EXPECT_EQ(inventory->cpus, 0);
}

TEST(Fake, KnowsTheMemoryOfTheModels) {
  EXPECT_EQ(fake_inventory("1xH200")->devices[0].memory, gib(141));
  EXPECT_EQ(fake_inventory("1xT4")->devices[0].memory, gib(16));
  EXPECT_EQ(fake_inventory("1xmy-own_model.2")->devices[0].memory, gib(16));
}

TEST(Fake, ANodeMayHaveNone) {
  for (const std::string_view spec : {"", "0", "0xH100"}) {
    const auto inventory = fake_inventory(spec);
    ASSERT_TRUE(inventory) << spec;
    EXPECT_TRUE(inventory->devices.empty());
  }
  EXPECT_EQ(fake_inventory("64xL4")->devices.size(), 64U);
}

TEST(Fake, RefusesWhatItCannotRead) {
  for (const std::string_view spec : {"65xH100", "-1xH100", "99999999999xH100", "H100", "8", "8x", "8H100",
                                      "8xH 100", "x", " 8xH100", "8x\n", "+8xH100"}) {
    const auto inventory = fake_inventory(spec);
    ASSERT_FALSE(inventory) << spec;
    EXPECT_EQ(inventory.error().code(), ErrorCode::invalid);
    EXPECT_FALSE(inventory.error().remedy().empty());
  }
}

}  // namespace
}  // namespace tutti::devices
