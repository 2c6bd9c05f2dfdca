#include "node/rank/fuse.hpp"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "node/rank/folder_test.hpp"

namespace tutti::rank {
namespace {

class FuseTest : public FolderTest {
 protected:
  // As the kernel lists one.
  void list(const std::string& name, uid_t user, const std::string& waiting) const {
    std::filesystem::create_directory(path(name));
    std::ofstream(path(name) + "/waiting") << waiting << "\n";
    std::ofstream(path(name) + "/abort") << "";
    ASSERT_EQ(chown(path(name).c_str(), user, user), 0);
  }
  std::string told(const std::string& name) const {
    std::ifstream file(path(name) + "/abort");
    return {std::istreambuf_iterator<char>(file), {}};
  }
};

TEST_F(FuseTest, DisksOfOneUserThatDoNotAnswerAreGivenUpAndNoOthers) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  list("41", 54'321, "3");
  list("42", 54'321, "0");
  list("43", 54'322, "3");
  list("44", 0, "3");
  EXPECT_EQ(abort_waiting_disks_of(54'321, folder()), 1U);
  EXPECT_EQ(told("41"), "1");
  for (const char* other : {"42", "43", "44"}) EXPECT_EQ(told(other), "") << other;
  EXPECT_EQ(abort_waiting_disks_of(54'321, path("not-there")), 0U);
}

}  // namespace
}  // namespace tutti::rank
