// Folders that travel with a job.
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <map>

#include <gtest/gtest.h>

#include "support/cluster.hpp"

namespace tutti {
namespace {

using support::has;
using support::read_text;
using support::TestCluster;
using support::write_text;

TEST(Jobs, SyncShipsAFolder) {
  const TestCluster cluster(2, 1);
  const std::string work = cluster.file("work");
  std::filesystem::create_directories(work + "/data");
  write_text(work + "/say", "#!/bin/sh\ncat data/words\n");
  std::filesystem::permissions(work + "/say", std::filesystem::perms::owner_all);
  write_text(work + "/data/words", "first words\n");
  write_text(work + "/secret.key", "secret\n");
  write_text(work + "/.tuttiignore", "*.key\n");
  const std::string script = "./say; ls; pwd";
  const auto first = cluster.run({"--sync", work, "--nodes", "2", "--no-prefix"}, script);
  EXPECT_EQ(first.exit_code, 0) << first.err;
  EXPECT_TRUE(has(first.out, "first words\n")) << first.out;
  EXPECT_FALSE(has(first.out, "secret.key")) << first.out;
  EXPECT_FALSE(has(first.out, work + "\n")) << "it runs in a copy: " << first.out;
  write_text(work + "/data/words", "other words\n");
  const auto second = cluster.run({"--sync", work, "--nodes", "2", "--no-prefix"}, script);
  EXPECT_EQ(second.exit_code, 0) << second.err;
  EXPECT_TRUE(has(second.out, "other words\n")) << second.out;
  EXPECT_FALSE(has(second.out, "first words\n")) << second.out;
}

TEST(Jobs, TheOutputOfAShippedJobIsWhereItWasSubmitted) {
  const TestCluster cluster(1, 1);
  const std::string work = cluster.file("work");
  std::filesystem::create_directories(work);
  write_text(work + "/words", "shipped words\n");
  const std::string out = "sync-output-" + std::to_string(::getpid());
  const auto run = cluster.run({"--sync", work, "--output", out + "-%j.log"}, "cat words");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_TRUE(has(read_text(out + "-1.log"), "shipped words")) << read_text(out + "-1.log");
  std::filesystem::remove(out + "-1.log");
  const auto both = cluster.run({"--sync", work, "--workdir", work}, "true");
  EXPECT_EQ(both.exit_code, 2) << both.err;
  EXPECT_TRUE(has(both.err, "workdir : ranks of a job with sync start in the shipped folder")) << both.err;
}

// The contents that a program keeps below a folder, each with the number of its file: one that is stored anew
// has another number.
std::map<std::string, std::uint64_t> blobs_in(const std::string& folder) {
  std::map<std::string, std::uint64_t> found;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    struct stat status {};
    if (entry.is_regular_file() && ::stat(entry.path().c_str(), &status) == 0)
      found[entry.path()] = status.st_ino;
  }
  return found;
}

TEST(Jobs, OfALargeFileOnlyWhatChangedIsShipped) {
  const TestCluster cluster(1, 1);
  const std::string work = cluster.file("work");
  std::filesystem::create_directories(work);
  std::string content;
  for (int line = 0; content.size() < 40U << 20; ++line) content += "line " + std::to_string(line) + "\n";
  content.resize(40U << 20);
  const auto ship = [&] {
    write_text(work + "/large", content);
    const auto local = support::run({"sha256sum", work + "/large"});
    const auto run = cluster.run({"--sync", work, "--no-prefix"}, "sha256sum <large");
    EXPECT_EQ(run.exit_code, 0) << run.err;
    EXPECT_EQ(run.out.substr(0, 64), local.out.substr(0, 64));
  };
  const std::vector<std::string> stores{cluster.home() + "/controller/blobs",
                                        cluster.home() + "/nodes/n1/blobs"};
  ship();
  std::vector<std::map<std::string, std::uint64_t>> before;
  for (const auto& store : stores) {
    before.push_back(blobs_in(store));
    EXPECT_EQ(before.back().size(), 6U) << "five chunks of 8 MiB and the manifest in " << store;
  }
  content[20U << 20] = '!';
  ship();
  for (std::size_t at = 0; at < stores.size(); ++at) {
    const auto after = blobs_in(stores[at]);
    EXPECT_EQ(after.size(), 8U) << "one other chunk and one other manifest in " << stores[at];
    for (const auto& [path, number] : before[at]) EXPECT_EQ(after.at(path), number) << "sent again: " << path;
  }
}

}  // namespace
}  // namespace tutti
