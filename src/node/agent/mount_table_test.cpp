#include "node/agent/mount_table.hpp"

#include <gtest/gtest.h>

namespace tutti::agent {
namespace {

constexpr const char* table =
    "22 27 0:21 / /proc rw,relatime - proc proc rw\n"
    "27 1 254:0 / / rw,relatime shared:1 master:2 - ext4 /dev/vda rw\n"
    "30 27 0:40 / /shared rw - nfs4 server:/export rw,vers=4.2\n"
    "31 27 0:41 / /mnt/two\\040words rw - xfs /dev/vdb rw\n"
    "32 27 0:42 / /over rw - nfs4 server:/export rw\n"
    "33 27 0:43 / /over rw - tmpfs tmpfs rw\n"
    "half a line";

TEST(MountTable, AFolderIsOnTheNearestMountAboveIt) {
  EXPECT_EQ(mount_of(table, "/shared/tutti"), (Mount{"/shared", "nfs4"}));
  EXPECT_EQ(mount_of(table, "/shared"), (Mount{"/shared", "nfs4"}));
  EXPECT_EQ(mount_of(table, "/shared2/tutti"), (Mount{"/", "ext4"}));
  EXPECT_EQ(mount_of(table, "/mnt/two words/tutti"), (Mount{"/mnt/two words", "xfs"}));
  EXPECT_EQ(mount_of(table, "/over/tutti"), (Mount{"/over", "tmpfs"})) << "it hides the other";
  EXPECT_FALSE(mount_of("", "/shared"));
  EXPECT_TRUE(mount_of(mount_table(), "/proc/self")) << "what the kernel has is read";
}

TEST(MountTable, AFolderThatOnlyThisMachineHasIsTold) {
  EXPECT_EQ(not_shared(table, "/shared/tutti"), "");
  EXPECT_EQ(not_shared("", "/shared/tutti"), "") << "not known";
  const std::string told = not_shared(table, "/not/mounted");
  EXPECT_NE(told.find("/not/mounted is on a disk of this machine alone (ext4, mounted at /)"),
            std::string::npos)
      << told;
  EXPECT_NE(told.find("--local-checkpoints"), std::string::npos);
}

}  // namespace
}  // namespace tutti::agent
