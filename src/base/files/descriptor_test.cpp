#include "base/files/descriptor.hpp"

#include <fcntl.h>

#include <gtest/gtest.h>

namespace tutti::files {
namespace {

FileDescriptor open_something() { return FileDescriptor(open("/dev/null", O_RDONLY | O_CLOEXEC)); }

bool is_open(int number) { return fcntl(number, F_GETFD) >= 0; }

TEST(FileDescriptor, IsClosedWithItsOwner) {
  EXPECT_FALSE(FileDescriptor().valid());
  int number = -1;
  {
    const FileDescriptor owner = open_something();
    ASSERT_TRUE(owner.valid());
    number = owner.get();
    EXPECT_TRUE(is_open(number));
  }
  EXPECT_FALSE(is_open(number));
}

TEST(FileDescriptor, MovesToANewOwner) {
  FileDescriptor first = open_something();
  const int number = first.get();
  FileDescriptor second = std::move(first);
  EXPECT_FALSE(first.valid());
  EXPECT_EQ(second.get(), number);
  FileDescriptor third = open_something();
  const int replaced = third.get();
  third = std::move(second);
  EXPECT_FALSE(is_open(replaced)) << "what it had is closed";
  EXPECT_TRUE(is_open(number));
  EXPECT_EQ(third.release(), number);
  third.reset();
  EXPECT_TRUE(is_open(number)) << "it was given away";
  FileDescriptor(number).reset();
  EXPECT_FALSE(is_open(number));
}

}  // namespace
}  // namespace tutti::files
