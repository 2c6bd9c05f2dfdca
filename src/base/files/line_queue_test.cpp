#include "base/files/line_queue.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <mutex>
#include <string>
#include <vector>

#include "base/files/descriptor.hpp"

namespace tutti::files {
namespace {

constexpr Duration forever = std::chrono::minutes(1);

struct Pipe {
  Pipe() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) return;
    read = FileDescriptor(ends[0]);
    write = FileDescriptor(ends[1]);
  }
  std::string take() const {
    std::array<char, 1 << 16> buffer{};
    const ssize_t count = ::read(read.get(), buffer.data(), buffer.size());
    return std::string(buffer.data(), count > 0 ? static_cast<std::size_t>(count) : 0);
  }
  // Until no byte more has room; whoever writes then waits.
  void fill() const {
    const int flags = ::fcntl(write.get(), F_GETFL);
    ::fcntl(write.get(), F_SETFL, flags | O_NONBLOCK);
    while (::write(write.get(), "x", 1) == 1) continue;
    ::fcntl(write.get(), F_SETFL, flags);
  }
  FileDescriptor read;
  FileDescriptor write;
};

// Whoever writes waits here until the test lets it.
class Gate {
 public:
  void wait() { const std::lock_guard lock(mutex_); }
  std::unique_lock<std::mutex> closed() { return std::unique_lock(mutex_); }

 private:
  std::mutex mutex_;
};

TEST(LineQueue, WritesInOrderAndDrains) {
  std::vector<std::string> written;
  const auto queue = LineQueue::start(
      1 << 20,
      [&](const std::string& line) {
        written.push_back(line);
        return true;
      },
      [](std::uint64_t) { return true; });
  ASSERT_TRUE(queue.ok());
  for (int at = 0; at < 100; ++at) queue->add(std::to_string(at));
  ASSERT_TRUE(queue->drain(forever));
  ASSERT_EQ(written.size(), 100U);
  for (std::size_t at = 0; at < 100; ++at) EXPECT_EQ(written[at], std::to_string(at));
}

TEST(LineQueue, WhatHasNoRoomIsCountedWhereItIsMissing) {
  Gate gate;
  std::vector<std::string> written;
  const auto queue = LineQueue::start(
      1000,
      [&](const std::string& line) {
        gate.wait();
        written.push_back(line);
        return true;
      },
      [&](std::uint64_t lines) {
        written.push_back("missing " + std::to_string(lines));
        return true;
      });
  ASSERT_TRUE(queue.ok());
  auto closed = gate.closed();
  const std::string large(900, 'l');
  queue->add("first");
  EXPECT_TRUE(queue->add(large));
  for (int at = 0; at < 3; ++at) EXPECT_FALSE(queue->add(large));
  EXPECT_FALSE(queue->drain(Duration::zero()));
  closed.unlock();
  ASSERT_TRUE(queue->drain(forever));
  queue->add("last");
  ASSERT_TRUE(queue->drain(forever));
  EXPECT_EQ(written, (std::vector<std::string>{"first", large, "missing 3", "last"}));
}

TEST(LineQueue, WhatCannotBeWrittenIsToldWithTheNextThatCan) {
  bool works = false;
  std::vector<std::string> written;
  const auto queue = LineQueue::start(
      1 << 20,
      [&](const std::string& line) {
        if (works) written.push_back(line);
        return works;
      },
      [&](std::uint64_t lines) {
        if (works) written.push_back("missing " + std::to_string(lines));
        return works;
      });
  ASSERT_TRUE(queue.ok());
  queue->add("a");
  queue->add("b");
  ASSERT_TRUE(queue->drain(forever));
  works = true;
  queue->add("c");
  ASSERT_TRUE(queue->drain(forever));
  EXPECT_EQ(written, (std::vector<std::string>{"missing 2", "c"}));
}

TEST(LineQueue, WhoeverIsLeftBehindInAWriteKeepsNobodyFromTheEnd) {
  const auto pipe = std::make_shared<Pipe>();
  pipe->fill();
  {
    const auto queue = LineQueue::start(
        1 << 20, [pipe](const std::string& line) { return write_line(pipe->write.get(), line); },
        [](std::uint64_t) { return true; });
    ASSERT_TRUE(queue.ok());
    queue->add("nobody reads this\n");
  }
  pipe->read.reset();  // lets the thread go
}

TEST(LineQueue, ALineIsWrittenWholeWhereTheDescriptorDoesNotWait) {
  const Pipe pipe;
  pipe.fill();
  ::fcntl(pipe.write.get(), F_SETFL, O_NONBLOCK);
  const auto queue = LineQueue::start(
      1 << 20, [&](const std::string& line) { return write_line(pipe.write.get(), line); },
      [](std::uint64_t) { return true; });
  ASSERT_TRUE(queue.ok());
  queue->add("the end");
  std::string read;
  while (!read.ends_with("the end")) {
    const std::string more = pipe.take();
    ASSERT_FALSE(more.empty());
    read += more;
  }
  EXPECT_TRUE(queue->drain(forever));
}

}  // namespace
}  // namespace tutti::files
