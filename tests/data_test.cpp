// `tutti data` as a user meets it: text becomes a dataset, wrong requests are told, and nothing is left
// behind.
#include <signal.h>

#include <filesystem>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "support/cluster.hpp"
#include "support/process.hpp"
#include "support/small_disk.hpp"

namespace tutti {
namespace {

using nlohmann::json;
using support::has;
using support::write_text;
namespace fs = std::filesystem;

class Data : public testing::Test {
 protected:
  std::string file(const std::string& name) const { return folder_.path() + "/" + name; }

  static support::Finished data(std::vector<std::string> words) {
    words.insert(words.begin(), {support::tutti_program, "data"});
    return support::run(words);
  }
  static json data_json(std::vector<std::string> words) {
    words.emplace_back("--json");
    const auto done = data(words);
    EXPECT_EQ(done.exit_code, 0) << done.err;
    return json::parse(done.out, nullptr, false);
  }
  static void expect_refused(const std::vector<std::string>& words, int exit_code, const std::string& part) {
    const auto done = data(words);
    EXPECT_EQ(done.exit_code, exit_code) << done.err;
    EXPECT_TRUE(has(done.err, part)) << done.err;
    EXPECT_EQ(done.out, "");
  }

  std::size_t things_in_the_folder() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(folder_.path()), fs::directory_iterator()));
  }

  // Two documents, and what is no text or hidden.
  void write_texts() const {
    fs::create_directories(file("texts/below"));
    fs::create_directories(file("texts/.git"));
    write_text(file("texts/b.txt"), "hello world\n");
    write_text(file("texts/below/a.txt"), "naïve 文字\n");
    write_text(file("texts/below/picture.png"), "\x89PNG\xFF\xFE");
    write_text(file("texts/.git/config"), "hidden");
    write_text(file("texts/.hidden"), "hidden");
    fs::create_directory_symlink(".", file("texts/circle"));
  }

 private:
  support::TempFolder folder_;
};

TEST_F(Data, TextBecomesADatasetThatCanBeShown) {
  write_texts();
  const auto packed = data({"pack", file("texts"), "--tokenizer", "bytes", "--out", file("set")});
  ASSERT_EQ(packed.exit_code, 0) << packed.err;
  EXPECT_TRUE(has(packed.out, "packed 2 documents")) << packed.out;
  EXPECT_TRUE(has(packed.err, "1 file is left out, not being UTF-8 text; the first is '")) << packed.err;
  const json shown = data_json({"show", file("set"), "--verify"});
  EXPECT_EQ(shown.value("documents", 0), 2);
  EXPECT_EQ(shown.value("tokens", 0), 12 + 14 + 2);
  EXPECT_EQ(shown.value("vocabulary", 0), 257);
  EXPECT_EQ(shown.value("token_type", ""), "u16");
  EXPECT_TRUE(shown.value("verified", false));
  EXPECT_TRUE(has(data({"show", file("set")}).out, shown.value("fingerprint", "?")));
  EXPECT_EQ(things_in_the_folder(), 2U);
}

TEST_F(Data, TheSameTextGivesTheSameDataset) {
  write_texts();
  const json one = data_json({"pack", file("texts"), "--tokenizer", "bytes", "--out", file("one")});
  const json two = data_json({"pack", file("texts"), "--tokenizer", "bytes", "--out", file("two")});
  EXPECT_EQ(one.value("fingerprint", "1"), two.value("fingerprint", "2"));
  EXPECT_EQ(one.value("files_skipped", 0), 1);
}

TEST_F(Data, ATokenizerIsLearnedAndUsed) {
  std::string text;
  for (int line = 0; line < 500; ++line)
    text += "the cat sat on the mat number " + std::to_string(line % 7) + "\n";
  write_text(file("text"), text);
  const json learned =
      data_json({"tokenizer", file("text"), "--vocabulary", "270", "--out", file("tokenizer.json")});
  EXPECT_EQ(learned.value("vocabulary", 0), 270);
  const json packed =
      data_json({"pack", file("text"), "--tokenizer", file("tokenizer.json"), "--out", file("set")});
  EXPECT_EQ(packed.value("vocabulary", 0), 270);
  EXPECT_LT(packed.value("tokens", 0) * 2, static_cast<int>(text.size()));
  EXPECT_EQ(support::read_text(file("set/tokenizer.json")), support::read_text(file("tokenizer.json")));
  expect_refused({"tokenizer", file("text"), "--out", file("tokenizer.json")}, 2, "exists already");
}

TEST_F(Data, WrongUsageIsTold) {
  write_text(file("text"), "text");
  expect_refused({}, 2, "missing pack|tokenizer|show");
  expect_refused({"pack"}, 2, "missing PATH");
  expect_refused({"pakc", file("text")}, 2, "did you mean 'pack'?");
  expect_refused({"pack", file("text"), "--tokenizer", "bytes"}, 2, "--out is missing");
  expect_refused({"pack", file("text"), "--out", file("set")}, 2, "--tokenizer is missing");
  expect_refused({"pack", file("text"), "--verify", "--tokenizer", "bytes", "--out", file("set")}, 2,
                 "--verify is not for `tutti data pack`");
  expect_refused({"tokenizer", file("text"), "--vocabulary", "12", "--out", file("x")}, 2, "less than 257");
  expect_refused({"show", file("one"), file("two")}, 2, "one dataset at a time");
  EXPECT_EQ(things_in_the_folder(), 1U);
}

TEST_F(Data, WhatIsNotThereIsTold) {
  write_text(file("text"), "text");
  expect_refused({"pack", file("nothing"), "--tokenizer", "bytes", "--out", file("set")}, 1, "No such file");
  expect_refused({"pack", file("text"), "--tokenizer", file("nothing.json"), "--out", file("set")}, 1,
                 "nothing.json: No such file");
  expect_refused({"pack", file("text"), "--tokenizer", file("text"), "--out", file("set")}, 2,
                 "tokenizer.json : it is no JSON object");
  expect_refused({"pack", file("text"), "--tokenizer", "bytes", "--out", file("no/set")}, 1, "No such file");
  expect_refused({"show", file("nothing")}, 1, "`tutti data pack` makes a dataset");
  write_text(file("picture"), "\xFF");
  expect_refused({"pack", file("picture"), "--tokenizer", "bytes", "--out", file("set")}, 2,
                 "a dataset needs at least one document");
  EXPECT_EQ(things_in_the_folder(), 2U);
}

TEST_F(Data, NothingButADatasetIsReplaced) {
  write_text(file("text"), "text");
  const std::vector<std::string> pack{"pack", file("text"), "--tokenizer", "bytes", "--out", file("set")};
  auto replace = pack;
  replace.emplace_back("--replace");
  ASSERT_EQ(data(pack).exit_code, 0);
  expect_refused(pack, 2, "--replace writes a new dataset in its place");
  write_text(file("text"), "other text");
  ASSERT_EQ(data(replace).exit_code, 0);
  EXPECT_EQ(data_json({"show", file("set")}).value("tokens", 0), 11);
  fs::remove(file("set/dataset.json"));
  expect_refused(replace, 2, "is no dataset");
}

TEST_F(Data, WhatIsNotOfTheDatasetIsNeverRemovedWithIt) {
  write_text(file("text"), "text");
  const std::vector<std::string> words{"--tokenizer", "bytes", "--out", file("corpus"), "--replace"};
  const auto pack_from = [&](const std::string& from) {
    std::vector<std::string> all{"pack", from};
    all.insert(all.end(), words.begin(), words.end());
    return all;
  };
  ASSERT_EQ(data(pack_from(file("text"))).exit_code, 0);
  fs::create_directories(file("corpus/texts"));
  write_text(file("corpus/texts/mine.txt"), "the only copy");
  expect_refused(pack_from(file("text")), 2, "holds more than a dataset, and is not replaced: 'texts'");
  expect_refused(pack_from(file("corpus/texts")), 2, "is text to pack and lies in");
  EXPECT_TRUE(fs::exists(file("corpus/texts/mine.txt")));
  fs::remove_all(file("corpus/texts"));
  expect_refused(pack_from(file(".")), 2, "is text to pack and lies in");  // its own dataset.json
  EXPECT_EQ(data_json({"show", file("corpus"), "--verify"}).value("tokens", 0), 5);
  EXPECT_EQ(things_in_the_folder(), 2U);
}

TEST_F(Data, NothingButATokenizerIsReplacedByOne) {
  write_texts();
  write_text(file("notes.txt"), "precious");
  const auto learn = [&](const std::string& out) {
    return data({"tokenizer", file("texts"), "--out", file(out), "--vocabulary", "300", "--replace"});
  };
  const auto refused = learn("notes.txt");
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_TRUE(has(refused.err, "is no tokenizer")) << refused.err;
  EXPECT_EQ(support::read_text(file("notes.txt")), "precious");
  EXPECT_EQ(learn("tokenizer.json").exit_code, 0);
  EXPECT_EQ(learn("tokenizer.json").exit_code, 0) << "a tokenizer may be";
}

TEST_F(Data, AFullDiskKeepsNoHalfOfATokenizer) {
  write_texts();
  const support::SmallDisk disk(file("disk"), 1);
  if (!disk.mounted()) GTEST_SKIP() << "needs root";
  disk.fill();
  const auto full =
      data({"tokenizer", file("texts"), "--out", file("disk/tokenizer.json"), "--vocabulary", "300"});
  EXPECT_EQ(full.exit_code, 1);
  EXPECT_TRUE(has(full.err, "No space left")) << full.err;
  disk.empty();
  EXPECT_TRUE(fs::is_empty(file("disk")));
}

TEST_F(Data, ADamagedShardIsNamed) {
  write_text(file("text"), "some text");
  ASSERT_EQ(data({"pack", file("text"), "--tokenizer", "bytes", "--out", file("set")}).exit_code, 0);
  const std::string shard = file("set/shard-00000.tokens");
  std::string bytes = support::read_text(shard);
  bytes[70] = 'X';
  write_text(shard, bytes);
  EXPECT_EQ(data({"show", file("set")}).exit_code, 0) << "only --verify reads it all";
  expect_refused({"show", file("set"), "--verify"}, 1, "shard-00000.tokens is damaged: block 0 of 1");
  bytes.pop_back();
  write_text(shard, bytes);
  expect_refused({"show", file("set")}, 1, "shard-00000.tokens is truncated");
}

// Enough text to be at work for long after the first sign of it.
TEST_F(Data, CtrlCLeavesNothingBehind) {
  std::string text;
  while (text.size() < (32U << 20U)) text += "words and words " + std::to_string(text.size()) + "\n";
  write_text(file("text"), text);
  support::Process packing({support::tutti_program, "data", "pack", file("text"), file("text"), file("text"),
                            file("text"), "--tokenizer", "bytes", "--out", file("set")},
                           file("out"));
  const std::string part = file("set.part-" + std::to_string(packing.pid()));
  ASSERT_TRUE(support::eventually([&] { return fs::exists(part); }));
  packing.signal(SIGINT);
  EXPECT_EQ(packing.wait(), 130);
  EXPECT_FALSE(fs::exists(part));
  EXPECT_FALSE(fs::exists(file("set")));
  EXPECT_TRUE(has(support::read_text(file("out.err")), "interrupted"));
}

TEST_F(Data, ATerminalThatIsClosedLeavesNothingBehindUnlessItIsToBeIgnored) {
  std::string text;
  while (text.size() < (16U << 20U)) text += "words and words " + std::to_string(text.size()) + "\n";
  write_text(file("text"), text);
  const auto hang_up = [&](std::vector<std::string> before, std::size_t texts) {
    before.insert(before.end(), {support::tutti_program, "data", "pack", "--tokenizer", "bytes"});
    before.insert(before.end(), {"--out", file("set")});
    before.insert(before.end(), texts, file("text"));
    support::Process packing(before, file("out"));
    const std::string part = file("set.part-" + std::to_string(packing.pid()));
    EXPECT_TRUE(support::eventually([&] { return fs::exists(part) || fs::exists(file("set")); }));
    packing.signal(SIGHUP);
    const int code = packing.wait();
    EXPECT_FALSE(fs::exists(part));
    return code;
  };
  EXPECT_EQ(hang_up({}, 8), 130);
  EXPECT_FALSE(fs::exists(file("set")));
  EXPECT_EQ(hang_up({"nohup"}, 1), 0) << support::read_text(file("out.err"));
  EXPECT_TRUE(fs::exists(file("set")));
}

}  // namespace
}  // namespace tutti
