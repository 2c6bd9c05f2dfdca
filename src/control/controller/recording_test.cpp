#include "control/controller/recording.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string>
#include <thread>

#include "base/files/files.hpp"
#include "base/scarcity/scarcity.hpp"

namespace tutti::controller {
namespace {

constexpr Duration forever = std::chrono::minutes(1);

cluster::Job job_that_ran(std::int64_t seconds) {
  cluster::Job job;
  job.submitted_at = Instant(std::chrono::seconds(10));
  job.started_at = Instant(std::chrono::seconds(20));
  job.finished_at = job.started_at + std::chrono::seconds(seconds);
  job.spec.user = "ada";
  return job;
}

std::string take(int file) {
  std::array<char, 1 << 16> buffer{};
  const ssize_t count = ::read(file, buffer.data(), buffer.size());
  return std::string(buffer.data(), count > 0 ? static_cast<std::size_t>(count) : 0);
}

TEST(Recording, WhatHasEndedBeforeTheEndIsThere) {
  const std::string path = testing::TempDir() + "recording_test." + std::to_string(::getpid()) + ".csv";
  for (const int jobs : {2, 1}) {
    const auto recording = Recording::open(path);
    ASSERT_TRUE(recording.ok()) << recording.error().text();
    for (int at = 0; at < jobs; ++at) recording->ended(job_that_ran(5));
    recording->ended(cluster::Job());
  }
  const auto text = files::read_existing_file(path, 1 << 20);
  ::unlink(path.c_str());
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(std::count(text->begin(), text->end(), '\n'), 4) << *text;
  EXPECT_EQ(text->find("job_id,"), 0U) << *text;
}

// As a disk that has stalled: far more than a pipe and the queue hold.
TEST(Recording, WhoeverTellsItOfJobsDoesNotWaitForTheDisk) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  const files::FileDescriptor file(ends[0]);
  testing::internal::CaptureStderr();
  std::thread reader;
  {
    const auto recording = Recording::onto(files::FileDescriptor(ends[1]), "trace.csv");
    ASSERT_TRUE(recording.ok());
    for (int at = 0; at < 100'000; ++at) recording->ended(job_that_ran(at));
    EXPECT_FALSE(recording->drain(Duration::zero()));
    reader = std::thread([&] {
      while (!take(file.get()).empty()) continue;
    });
    EXPECT_TRUE(recording->drain(forever));
  }
  reader.join();
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("jobs are missing in trace.csv"), std::string::npos) << said;
}

TEST(Recording, AJobThatThereIsNoMemoryForIsMissingAndEndsNobody) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  const files::FileDescriptor file(ends[0]);
  testing::internal::CaptureStderr();
  {
    const auto recording = Recording::onto(files::FileDescriptor(ends[1]), "trace.csv");
    ASSERT_TRUE(recording.ok());
    cluster::Job large = job_that_ran(5);
    large.spec.user = std::string(64 << 10, 'a');
    {
      const Scarcity few(16 << 10);
      recording->ended(large);
    }
    recording->ended(job_that_ran(5));
    EXPECT_TRUE(recording->drain(forever));
  }
  const std::string text = take(file.get());
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("1 jobs are missing in trace.csv"), std::string::npos) << said;
}

// A full pipe that nobody waits for, as a disk that is full for a while.
TEST(Recording, HowManyAFullDiskHasNotTakenIsTold) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK), 0);
  ASSERT_GT(::fcntl(ends[1], F_SETPIPE_SZ, 4096), 0);
  const files::FileDescriptor file(ends[0]);
  testing::internal::CaptureStderr();
  constexpr std::int64_t jobs = 1'000;
  std::int64_t written = 0;
  {
    const auto recording = Recording::onto(files::FileDescriptor(ends[1]), "trace.csv");
    ASSERT_TRUE(recording.ok());
    for (int at = 0; at < jobs; ++at) recording->ended(job_that_ran(5));
    EXPECT_TRUE(recording->drain(forever));
    for (std::string text = take(file.get()); !text.empty(); text = take(file.get()))
      written += std::count(text.begin(), text.end(), '\n');
    recording->ended(job_that_ran(5));
    EXPECT_TRUE(recording->drain(forever));
  }
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(
      said.find("records again: trace.csv; " + std::to_string(jobs - written) + " jobs are missing in it"),
      std::string::npos)
      << said;
}

}  // namespace
}  // namespace tutti::controller
