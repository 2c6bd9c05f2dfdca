// What is opened more than once, by ranks, by a worker, by the one after it: the same files, or an error.
#include "serve/load/fingerprint.hpp"

#include <filesystem>

#include <gtest/gtest.h>

#include "serve/cpu/tiny_folder_test.hpp"
#include "serve/load/load.hpp"
#include "serve/load/made_run_test.hpp"
#include "serve/lora/made_adapter_test.hpp"

namespace tutti::serve {
namespace {

namespace fs = std::filesystem;

cpu::TinyFolder made_folder() { return {257, 64, tokenizer::Tokenizer::bytes().json()}; }

// As if somebody had written it anew.
void touch(const std::string& file) {
  fs::last_write_time(file, fs::last_write_time(file) + std::chrono::seconds(1));
}

// A worker: it has opened the files by itself, and tells which.
class Elsewhere final : public Model {
 public:
  explicit Elsewhere(std::string fingerprint) : fingerprint_(std::move(fingerprint)) {}
  const Limits& limits() const override { return limits_; }
  Result<> step(std::span<const Chunk>) override { return {}; }
  Result<std::vector<Chosen>> choose(std::span<const Choice>) override { return std::vector<Chosen>(); }
  Result<std::vector<float>> logits(std::int32_t) override { return std::vector<float>(); }
  std::string describe() const override { return "elsewhere"; }
  std::string fingerprint() const override { return fingerprint_; }

 private:
  Limits limits_;
  std::string fingerprint_;
};

Result<std::unique_ptr<Model>> open_elsewhere(const Source& source, const LoadOptions& options) {
  const auto again = open_source(source.path);
  if (!again) return again.error();
  return std::unique_ptr<Model>(std::make_unique<Elsewhere>(fingerprint_of(*again, options.adapters)));
}

float first_weight(const Source& source) {
  float number = 0;
  EXPECT_TRUE(source.read("model.norm.weight", 0, 1, {&number, 1})) << source.path;
  return number;
}

TEST(Fingerprint, IsThatOfTheFilesThatDecide) {
  const auto folder = made_folder();
  const auto now = [&] { return fingerprint_of(*open_source(folder.path()), {}); };
  const std::string first = now();
  EXPECT_EQ(now(), first);
  folder.write("generation_config.json", "{}");
  folder.write("notes.txt", "nothing of it is computed with");
  EXPECT_EQ(now(), first);
  touch(folder.path() + "/model.safetensors");
  const std::string second = now();
  EXPECT_NE(second, first);
  touch(folder.path() + "/config.json");
  EXPECT_NE(now(), second);
}

TEST(Fingerprint, IsThatOfTheAdaptersToo) {
  const auto folder = made_folder();
  const auto source = open_source(folder.path());
  ASSERT_TRUE(source);
  const lora::MadeAdapter made(source->shape, {});
  const std::vector<NamedAdapter> adapters{{"polite", made.path()}};
  const std::string first = fingerprint_of(*source, adapters);
  EXPECT_NE(first, fingerprint_of(*source, {}));
  EXPECT_TRUE(check_unchanged(*source, adapters, first));
  touch(made.path() + "/adapter_model.safetensors");
  EXPECT_NE(fingerprint_of(*source, adapters), first);
  EXPECT_FALSE(check_unchanged(*source, adapters, first)) << "they were being read meanwhile";
}

TEST(Fingerprint, TellsThatTheFilesWereChangedWhileTheyWereRead) {
  const auto folder = made_folder();
  const auto source = open_source(folder.path());
  ASSERT_TRUE(source);
  const std::string fingerprint = fingerprint_of(*source, {});
  EXPECT_TRUE(check_unchanged(*source, {}, fingerprint));
  touch(folder.path() + "/model.safetensors");
  const auto changed = check_unchanged(*source, {}, fingerprint);
  ASSERT_FALSE(changed);
  EXPECT_EQ(changed.error().message(), "its files were changed while they were read");
  EXPECT_NE(changed.error().remedy(), "");
}

TEST(Fingerprint, OfACheckpointIsThatOfWhatWasWritten) {
  const MadeRun run;
  run.save(1, 0.25F);
  const std::string first = fingerprint_of(*open_source(run.path()), {});
  const auto held = open_source(run.path());
  ASSERT_TRUE(held);
  run.save(2, 0.5F);
  EXPECT_NE(fingerprint_of(*open_source(run.path()), {}), first);
  EXPECT_EQ(fingerprint_of(*open_source(run.step_path(1)), {}), first);
  run.keep_only_the_newest();
  EXPECT_TRUE(check_unchanged(*held, {}, first)) << "it is held";
  EXPECT_EQ(first_weight(*held), 0.25F);
}

// Whoever opens it next opens what was opened here.
TEST(Fingerprint, ARunHandsOnTheCheckpointThatItOpened) {
  const MadeRun run;
  run.save(1, 0.25F);
  const auto source = open_source(run.path());
  ASSERT_TRUE(source) << source.error().text();
  EXPECT_EQ(source->path, run.step_path(1));
  EXPECT_EQ(source->name, "run");
  run.save(2, 0.5F);
  const auto again = open_source(source->path);
  ASSERT_TRUE(again) << again.error().text();
  EXPECT_EQ(again->name, "run");
  EXPECT_EQ(again->detail, source->detail);
  EXPECT_EQ(first_weight(*again), 0.25F);
}

TEST(Fingerprint, AWorkerThatHasReadOtherFilesIsNoModel) {
  const auto folder = made_folder();
  LoadOptions options{.device = Device::cuda, .on_gpu = open_elsewhere};
  ASSERT_TRUE(load(folder.path(), options));
  options.on_gpu = [&](const Source& source, const LoadOptions& given) {
    touch(folder.path() + "/model.safetensors");
    return open_elsewhere(source, given);
  };
  const auto loaded = load(folder.path(), options);
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().message(), "its files were changed since it was opened");
  EXPECT_NE(loaded.error().remedy(), "");
}

TEST(Fingerprint, FilesThatAreWrittenAnewWhileTheyAreReadHereAreNoModel) {
  const auto folder = made_folder();
  const auto while_read = [&](const std::string& written) {
    LoadOptions options{.threads = 1, .cache_bytes = 4 << 20, .ranks = 2};
    options.in_ranks = [&, written](const Source& source, const LoadOptions& given) {
      folder.write(written, "{}");
      if (written == "config.json") touch(folder.path() + "/" + written);
      auto here = given;
      here.ranks = 1;
      return make_model(source, here);
    };
    const auto loaded = load(folder.path(), options);
    return loaded ? "" : loaded.error().message();
  };
  EXPECT_EQ(while_read("notes.txt"), "");
  EXPECT_EQ(while_read("config.json"), "its files were changed while they were read");
}

TEST(Fingerprint, AFolderThatWasOverwrittenIsNotServedInItsPlace) {
  const auto folder = made_folder();
  const auto loaded = load(folder.path(), {.device = Device::cuda, .on_gpu = open_elsewhere});
  ASSERT_TRUE(loaded) << loaded.error().text();
  EXPECT_TRUE(loaded->reopen());
  const std::string file = folder.path() + "/model.safetensors";
  const auto written = fs::last_write_time(file);
  touch(file);
  const auto other = loaded->reopen();
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().message(), "its files were changed since it was opened");
  fs::last_write_time(file, written);
  EXPECT_TRUE(loaded->reopen()) << "what was there is back";
}

TEST(Fingerprint, ARunThatTrainsOnIsServedAsItWas) {
  const MadeRun run;
  run.save(1, 0.25F);
  const auto loaded = load(run.path(), {.device = Device::cuda, .on_gpu = open_elsewhere});
  ASSERT_TRUE(loaded) << loaded.error().text();
  run.save(2, 0.5F);
  EXPECT_TRUE(loaded->reopen()) << "the same step";
  run.keep_only_the_newest();
  const auto gone = loaded->reopen();
  ASSERT_FALSE(gone) << "and no other one";
  EXPECT_EQ(gone.error().text(), run.step_path(1) + " : it was removed since it was opened");
  EXPECT_EQ(gone.error().remedy(), "start it again with what is there now");
}

// Between what is opened here and what a worker opens, a training removes it: the newest is what was asked
// for.
TEST(Fingerprint, ACheckpointThatIsRemovedWhileItIsLoadedGivesWayToTheNewest) {
  const MadeRun run;
  run.save(1, 0.25F);
  int opened = 0;
  const auto on_gpu = [&](const Source& source, const LoadOptions& given) {
    if (++opened == 1) {
      run.save(2, 0.5F);
      run.keep_only_the_newest();
    }
    return open_elsewhere(source, given);
  };
  const auto loaded = load(run.path(), {.device = Device::cuda, .on_gpu = on_gpu});
  ASSERT_TRUE(loaded) << loaded.error().text();
  EXPECT_EQ(loaded->source.detail, "step 2 of a run");
  EXPECT_EQ(first_weight(loaded->source), 0.5F);
  // One that was asked for by its own name is no other.
  opened = 0;
  run.save(3, 0.75F);
  const auto none = load(run.step_path(2), {.device = Device::cuda,
                                            .on_gpu = [&](const Source& source, const LoadOptions& given) {
                                              run.keep_only_the_newest();
                                              return open_elsewhere(source, given);
                                            }});
  EXPECT_FALSE(none);
}

}  // namespace
}  // namespace tutti::serve
