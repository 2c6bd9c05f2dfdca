#include "control/controller/janitor.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <future>

#include <gtest/gtest.h>

#include "base/bytes.hpp"
#include "control/controller/store_file.hpp"
#include "control/store/memory/memory_store.hpp"
#include "net/sync/digest.hpp"
#include "net/sync/manifest.hpp"

namespace tutti::controller {
namespace {

struct JanitorTest : testing::Test {
  std::string folder = testing::TempDir() + "janitor." + std::to_string(::getpid());
  sync::BlobStore blobs{folder + "/blobs"};
  store::MemoryStore store;

  void SetUp() override { std::filesystem::create_directories(folder); }
  void TearDown() override { std::filesystem::remove_all(folder); }

  // A blob that was last used a year ago.
  std::string old_blob(const std::string& content, std::chrono::seconds age = 24h * 365) {
    const std::string hash = sync::hash_bytes(as_bytes(content));
    EXPECT_TRUE(blobs.put(hash, as_bytes(content)).ok());
    make_old(hash, age);
    return hash;
  }
  void make_old(const std::string& hash, std::chrono::seconds age = 24h * 365) const {
    const timespec then{::time(nullptr) - age.count(), 0};
    const timespec times[2] = {then, then};
    EXPECT_EQ(::utimensat(AT_FDCWD, blobs.path_of(hash).c_str(), times, 0), 0);
  }
};

TEST_F(JanitorTest, OldBlobsGoUnlessAnUnfinishedJobNeedsThem) {
  const std::string needed = old_blob("of a job that waits");
  const std::string forgotten = old_blob("of nobody");
  const std::string lately = old_blob("just shipped");
  sync::Manifest manifest;
  manifest.entries.push_back({.path = "file", .chunks = {needed}, .bytes = Bytes(19)});
  const std::string root = old_blob(sync::encode(manifest));
  EXPECT_TRUE(blobs.use(lately)) << "somebody asks what is missing, and it counts as used";

  Core core(store, [](const driver::Delivery&) {});
  ASSERT_TRUE(core.start().ok());
  cluster::JobSpec spec;
  spec.command = {"true"};
  spec.sync = root;
  std::promise<void> submitted;
  core.happen(cluster::Submit{{spec}}, [&](const auto& done) {
    EXPECT_TRUE(done.ok());
    submitted.set_value();
  });
  submitted.get_future().wait();

  Janitor janitor(core, {.folder = folder, .blobs_bytes_max = gib(1), .blobs_age_max = 24h});
  // While a manifest cannot be read, nobody knows what its job needs.
  std::filesystem::rename(blobs.path_of(root), folder + "/aside");
  std::filesystem::create_directory(blobs.path_of(root));
  janitor.clean();
  EXPECT_TRUE(blobs.has(needed));
  EXPECT_TRUE(blobs.has(forgotten));
  std::filesystem::remove(blobs.path_of(root));
  std::filesystem::rename(folder + "/aside", blobs.path_of(root));

  janitor.clean();
  EXPECT_TRUE(blobs.has(needed));
  EXPECT_TRUE(blobs.has(root));
  EXPECT_TRUE(blobs.has(lately));
  EXPECT_FALSE(blobs.has(forgotten));
  EXPECT_GT(janitor.kept().blobs, Bytes(0));

  // When the job is over, they are nobody's.
  std::promise<void> cancelled;
  core.happen(cluster::Cancel{cluster::JobId(1), "", false}, [&](const auto&) { cancelled.set_value(); });
  cancelled.get_future().wait();
  make_old(root);
  make_old(needed);
  janitor.clean();
  EXPECT_FALSE(blobs.has(needed));
  EXPECT_FALSE(blobs.has(root));
  core.stop();
}

TEST_F(JanitorTest, TheStoreIsAsLargeAsItIsNowAlsoWhereNothingCanBeCleaned) {
  Core core(store, [](const driver::Delivery&) {});
  Janitor janitor(core, {.folder = folder});
  janitor.weigh_store();
  EXPECT_EQ(janitor.kept().store, Bytes(0));
  std::filesystem::create_directories(std::filesystem::path(store_file(folder)).parent_path());
  std::ofstream(store_file(folder)) << "0123456789";
  std::ofstream(store_file(folder) + "-wal") << "01234";
  janitor.weigh_store();
  EXPECT_EQ(janitor.kept().store, Bytes(15));
}

TEST_F(JanitorTest, TooManyBlobsGoOldestFirst) {
  const std::string first = old_blob(std::string(1000, 'a'));
  Core core(store, [](const driver::Delivery&) {});
  ASSERT_TRUE(core.start().ok());
  Janitor janitor(core, {.folder = folder, .blobs_bytes_max = Bytes(500), .blobs_age_max = {}});
  janitor.clean();
  EXPECT_FALSE(blobs.has(first));
  EXPECT_EQ(janitor.kept().blobs, Bytes(0));
  core.stop();
}

TEST_F(JanitorTest, AClockThatIsWrongForAMomentCostsNothing) {
  const std::string shipped = old_blob("somebody is about to submit its job", 2h);
  Core core(store, [](const driver::Delivery&) {});
  ASSERT_TRUE(core.start().ok());
  CalmDate calm;
  Instant wall(std::chrono::seconds(::time(nullptr)));
  Duration steady = 100s;
  Janitor janitor(core,
                  {.folder = folder, .date = [&] { return calm.see(wall, steady); }, .blobs_age_max = 24h});
  janitor.clean();
  wall += 30 * 24h;
  steady += 5min;
  janitor.clean();
  EXPECT_TRUE(blobs.has(shipped));
  wall += 2h;
  steady += 2h;
  janitor.clean();
  EXPECT_FALSE(blobs.has(shipped)) << "it was right";
  core.stop();
}

TEST_F(JanitorTest, OfEveryDiskTheStoreHasItsPart) {
  EXPECT_EQ(store_room({gib(1), gib(100)}), gib(5));
  EXPECT_EQ(store_room({gib(1), gib(100'000)}), gib(10));
  EXPECT_EQ(store_room({gib(1), gib(1)}), mib(64));
  EXPECT_EQ(store_room({mib(1), mib(200)}), mib(50)) << "a small disk is not the store's alone";
}

TEST_F(JanitorTest, WhereTheDiskIsShortWhatNobodyNeedsGoesAndThenNothingMoreIsTaken) {
  const std::string unneeded = old_blob(std::string(1000, 'a'), 30min);
  const std::string lately = old_blob(std::string(1000, 'b'), 1min);
  Core core(store, [](const driver::Delivery&) {});
  ASSERT_TRUE(core.start().ok());
  // A disk on which all but these two blobs is somebody else's.
  Bytes others = mib(100);
  const auto disk = [&] {
    const Bytes used = others + Bytes((blobs.has(unneeded) ? 1000 : 0) + (blobs.has(lately) ? 1000 : 0));
    return std::optional(DiskRoom{mib(200) - used, mib(200)});
  };
  Janitor janitor(core, {.folder = folder, .disk = disk});
  EXPECT_TRUE(janitor.make_room(mib(16)).ok());
  EXPECT_TRUE(blobs.has(unneeded)) << "there is room enough";
  others = mib(134);
  EXPECT_FALSE(janitor.make_room(mib(16)).ok()) << "the store needs what would be left";
  EXPECT_FALSE(blobs.has(unneeded));
  EXPECT_TRUE(blobs.has(lately)) << "its job may be about to be submitted";
  EXPECT_TRUE(janitor.make_room(mib(8)).ok());
  EXPECT_EQ(janitor.kept().blobs, sync::blob_room_min);
  janitor.stored(Bytes(5));
  EXPECT_EQ(janitor.kept().blobs, sync::blob_room_min + sync::blob_room_min)
      << "what has come since is counted, as what it takes of the disk";
  core.stop();
}

// Millions of a few bytes each would fit by their bytes.
TEST_F(JanitorTest, OfBlobsThereAreOnlySoMany) {
  const std::string oldest = old_blob("a", 3h);
  const std::string old = old_blob("b", 2h);
  const std::string later = old_blob("c", 30min);
  const std::string lately = old_blob("d", 1min);
  Core core(store, [](const driver::Delivery&) {});
  ASSERT_TRUE(core.start().ok());
  const auto disk = [] { return std::optional(DiskRoom{gib(100), gib(200)}); };
  Janitor janitor(core, {.folder = folder, .disk = disk, .blobs_count = 6, .blobs_age_max = {}});
  janitor.clean();
  EXPECT_FALSE(blobs.has(oldest)) << "half of what may be here stays without need";
  EXPECT_TRUE(blobs.has(old));
  EXPECT_TRUE(janitor.make_room(Bytes(1)).ok());
  const std::string more[] = {old_blob("e", 20min), old_blob("f", 1min), old_blob("g", 1min),
                              old_blob("h", 1min)};
  for (std::size_t count = 0; count < std::size(more); ++count) janitor.stored(Bytes(1));
  EXPECT_TRUE(janitor.make_room(Bytes(1)).ok()) << "what nobody needs goes sooner";
  EXPECT_FALSE(blobs.has(old));
  EXPECT_FALSE(blobs.has(later));
  EXPECT_FALSE(blobs.has(more[0]));
  EXPECT_TRUE(blobs.has(lately));
  for (std::size_t count = 0; count < 3; ++count) janitor.stored(Bytes(1));
  const auto refused = janitor.make_room(Bytes(1));
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message().find("keeps no more"), std::string::npos);
  core.stop();
}

}  // namespace
}  // namespace tutti::controller
