#include "control/controller/attempt_secrets.hpp"

#include <sys/stat.h>

#include <filesystem>

#include <gtest/gtest.h>

namespace tutti::controller {
namespace {

struct Folder {
  Folder() { EXPECT_NE(::mkdtemp(path.data()), nullptr); }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string path = testing::TempDir() + "attempt-XXXXXX";
};

cluster::Job job_of(std::uint64_t id, std::int32_t attempt) {
  cluster::Job job;
  job.id = cluster::JobId(id);
  job.attempt = attempt;
  return job;
}

TEST(AttemptSecrets, AreTheSameAfterAStartAndOthersForEveryAttempt) {
  const Folder folder;
  const auto first = attempt_secrets(folder.path);
  const auto second = attempt_secrets(folder.path);
  ASSERT_TRUE(first.ok() && second.ok());
  const std::string secret = (*first)("c", job_of(7, 0));
  EXPECT_EQ(secret.size(), 64U);
  EXPECT_EQ((*second)("c", job_of(7, 0)), secret);
  for (const auto& other :
       {(*first)("c", job_of(7, 1)), (*first)("c", job_of(8, 0)), (*first)("d", job_of(7, 0))})
    EXPECT_NE(other, secret);
  struct stat status {};
  ASSERT_EQ(::stat((folder.path + "/ranks.key").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0600U);
}

TEST(AttemptSecrets, AFolderThatTakesNoKeyKeepsNobodyFromStarting) {
  const auto secrets = attempt_secrets("/proc/nowhere");
  ASSERT_TRUE(secrets.ok()) << secrets.error().text();
  EXPECT_EQ((*secrets)("c", job_of(7, 0)), (*secrets)("c", job_of(7, 0)));
}

}  // namespace
}  // namespace tutti::controller
