#include "learn/dataset/dataset.hpp"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "learn/dataset/writer.hpp"

namespace tutti::dataset {
namespace {

namespace fs = std::filesystem;
using Tokens = std::vector<std::uint32_t>;

class DatasetTest : public testing::Test {
 protected:
  DatasetTest() {
    std::string path = (fs::temp_directory_path() / "tutti-dataset-XXXXXX").string();
    folder_ = mkdtemp(path.data());
  }
  ~DatasetTest() override { fs::remove_all(folder_); }

  std::string place() const { return folder_ + "/data"; }
  std::string shard(std::size_t number) const { return place() + "/" + shard_name(number); }
  std::size_t things_in_the_folder() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

  WriterOptions options(std::int64_t vocabulary = 1000) const {
    return {.folder = place(),
            .tokenizer_json = "{}",
            .vocabulary = vocabulary,
            .end_of_text = static_cast<std::uint32_t>(vocabulary - 1)};
  }

  static Result<Description> write(const WriterOptions& options, const std::vector<Tokens>& documents) {
    auto writer = Writer::create(options);
    if (!writer) return std::move(writer).error();
    for (const auto& document : documents) {
      if (auto added = writer->add_document(document); !added) return std::move(added).error();
    }
    return writer->finish();
  }

  static Tokens read_all(const Dataset& dataset) {
    Tokens tokens(dataset.tokens());
    dataset.read(0, tokens);
    return tokens;
  }

  static void damage(const std::string& path, std::uint64_t at) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(at));
    const char byte = static_cast<char>(file.get() ^ 1);
    file.seekp(static_cast<std::streamoff>(at));
    file.put(byte);
  }

  static std::string why(const Result<>& result) { return result ? "" : result.error().text(); }
  std::string why_not_opened() const {
    auto opened = Dataset::open(place());
    return opened ? "" : opened.error().text();
  }

 private:
  std::string folder_;
};

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// Longer than a block of two-byte tokens.
Tokens long_document(std::size_t size = 700'000) {
  Tokens tokens(size);
  std::iota(tokens.begin(), tokens.end(), 0);
  for (auto& token : tokens) token %= 997;
  return tokens;
}

TEST_F(DatasetTest, GivesBackWhatWasWritten) {
  const auto written = write(options(), {{1, 2, 3}, {}, {4}});
  ASSERT_TRUE(written) << written.error().text();
  const auto dataset = Dataset::open(place());
  ASSERT_TRUE(dataset) << dataset.error().text();
  EXPECT_EQ(read_all(*dataset), (Tokens{1, 2, 3, 999, 999, 4, 999}));
  EXPECT_EQ(dataset->documents(), 3U);
  EXPECT_EQ(dataset->vocabulary(), 1000);
  EXPECT_EQ(dataset->end_of_text(), 999U);
  EXPECT_EQ(dataset->tokenizer_json(), "{}");
  EXPECT_EQ(dataset->shards(), 1U);
  EXPECT_TRUE(dataset->verify());
  EXPECT_EQ(things_in_the_folder(), 1U) << "nothing beside the dataset";
}

TEST_F(DatasetTest, TokensAreAsSmallAsTheVocabularyAllows) {
  for (const auto& [vocabulary, type, bytes] :
       {std::tuple(65'536, TokenType::u16, 2), std::tuple(65'537, TokenType::u32, 4)}) {
    auto chosen = options(vocabulary);
    chosen.replace = true;
    ASSERT_TRUE(write(chosen, {{7, static_cast<std::uint32_t>(vocabulary - 2)}}));
    const auto dataset = Dataset::open(place());
    ASSERT_TRUE(dataset);
    EXPECT_EQ(dataset->type(), type);
    EXPECT_EQ(fs::file_size(shard(0)), header_bytes + 3 * static_cast<std::size_t>(bytes));
    EXPECT_EQ(read_all(*dataset)[1], static_cast<std::uint32_t>(vocabulary - 2));
  }
}

TEST_F(DatasetTest, ReadsAcrossShards) {
  auto small = options();
  small.shard_bytes_max = Bytes(20);
  const Tokens document = long_document(95);
  const auto written = write(small, {document});
  ASSERT_TRUE(written) << written.error().text();
  EXPECT_EQ(written->shards.size(), 10U);
  const auto dataset = Dataset::open(place());
  ASSERT_TRUE(dataset) << dataset.error().text();
  EXPECT_TRUE(dataset->verify());
  Tokens expected = document;
  expected.push_back(999);
  for (std::size_t begin = 0; begin <= expected.size(); ++begin) {
    for (std::size_t size = 0; begin + size <= expected.size(); size += 7) {
      Tokens part(size);
      dataset->read(begin, part);
      EXPECT_TRUE(
          std::equal(part.begin(), part.end(), expected.begin() + static_cast<std::ptrdiff_t>(begin)));
    }
  }
}

TEST_F(DatasetTest, PiecesOfADocumentAreOneDocument) {
  auto writer = Writer::create(options());
  ASSERT_TRUE(writer);
  ASSERT_TRUE(writer->append(Tokens{1, 2}));
  ASSERT_TRUE(writer->append(Tokens{3}));
  ASSERT_TRUE(writer->end_document());
  ASSERT_TRUE(writer->finish());
  EXPECT_EQ(read_all(*Dataset::open(place())), (Tokens{1, 2, 3, 999}));
}

TEST_F(DatasetTest, TheFingerprintIsOfTheTokens) {
  auto chosen = options();
  chosen.replace = true;
  const auto fingerprint = [&](const std::vector<Tokens>& documents) {
    EXPECT_TRUE(write(chosen, documents));
    return Dataset::open(place())->fingerprint();
  };
  const auto first = fingerprint({{1, 2, 3}});
  EXPECT_EQ(fingerprint({{1, 2, 3}}), first);
  EXPECT_NE(fingerprint({{1, 2, 4}}), first);
  chosen.tokenizer_json = "{ }";
  EXPECT_NE(fingerprint({{1, 2, 3}}), first);
}

TEST_F(DatasetTest, NamesTheDamagedBlock) {
  ASSERT_TRUE(write(options(), {long_document()}));
  damage(shard(0), header_bytes + block_bytes + 5);
  const auto dataset = Dataset::open(place());
  ASSERT_TRUE(dataset) << dataset.error().text();
  EXPECT_TRUE(has(why(dataset->verify()), "shard-00000.tokens is damaged: block 1 of 2"))
      << why(dataset->verify());
}

TEST_F(DatasetTest, RefusesATruncatedShard) {
  ASSERT_TRUE(write(options(), {long_document()}));
  const auto size = fs::file_size(shard(0));
  fs::resize_file(shard(0), size - 1);
  EXPECT_TRUE(has(why_not_opened(), "shard-00000.tokens is truncated")) << why_not_opened();
  fs::resize_file(shard(0), size + 1);
  EXPECT_TRUE(has(why_not_opened(), "shard-00000.tokens is too long")) << why_not_opened();
  fs::remove(shard(0));
  EXPECT_TRUE(has(why_not_opened(), "shard-00000.tokens: No such file")) << why_not_opened();
}

TEST_F(DatasetTest, RefusesADamagedHeaderTokenizerOrDescription) {
  ASSERT_TRUE(write(options(), {{1, 2, 3}}));
  damage(shard(0), 9);
  EXPECT_TRUE(has(why_not_opened(), "header")) << why_not_opened();
  damage(shard(0), 9);
  EXPECT_EQ(why_not_opened(), "");
  damage(place() + "/tokenizer.json", 0);
  EXPECT_TRUE(has(why_not_opened(), "tokenizer.json is damaged")) << why_not_opened();
  fs::remove(place() + "/dataset.json");
  EXPECT_TRUE(has(why_not_opened(), "dataset.json: No such file")) << why_not_opened();
}

TEST_F(DatasetTest, VerifyTellsHowFarItIsAndCanBeEnded) {
  ASSERT_TRUE(write(options(), {long_document()}));
  const auto dataset = Dataset::open(place());
  ASSERT_TRUE(dataset);
  std::uint64_t last = 0;
  EXPECT_TRUE(dataset->verify([&](std::uint64_t done, std::uint64_t all) {
    EXPECT_GT(done, last);
    EXPECT_EQ(all, 2 * dataset->tokens());
    last = done;
    return true;
  }));
  EXPECT_EQ(last, 2 * dataset->tokens());
  EXPECT_FALSE(dataset->verify([](std::uint64_t, std::uint64_t) { return false; }));
}

TEST_F(DatasetTest, ReplacesOnlyADatasetAndOnlyIfAsked) {
  ASSERT_TRUE(write(options(), {{1}}));
  const auto again = write(options(), {{2}});
  ASSERT_FALSE(again);
  EXPECT_TRUE(has(again.error().text(), "exists already"));
  auto replacing = options();
  replacing.replace = true;
  replacing.folder += "/";
  ASSERT_TRUE(write(replacing, {{2}}));
  EXPECT_EQ(read_all(*Dataset::open(place())), (Tokens{2, 999}));
  EXPECT_EQ(things_in_the_folder(), 1U);
  fs::create_directory(place() + "/mine");
  fs::create_directory(place() + "/shard-1.tokens.old");
  const auto with_others = write(replacing, {{3}});
  ASSERT_FALSE(with_others);
  EXPECT_TRUE(has(with_others.error().text(), "'mine', 'shard-1.tokens.old'")) << with_others.error().text();
  EXPECT_TRUE(fs::exists(place() + "/mine"));
  fs::remove(place() + "/dataset.json");
  const auto no_dataset = write(replacing, {{3}});
  ASSERT_FALSE(no_dataset);
  EXPECT_TRUE(has(no_dataset.error().text(), "is no dataset"));
}

TEST_F(DatasetTest, WhatIsNotFinishedLeavesNothing) {
  {
    auto writer = Writer::create(options());
    ASSERT_TRUE(writer);
    ASSERT_TRUE(writer->add_document(long_document()));
    EXPECT_EQ(things_in_the_folder(), 1U);
  }
  EXPECT_EQ(things_in_the_folder(), 0U);
  EXPECT_FALSE(write(options(), {})) << "no document";
  EXPECT_EQ(things_in_the_folder(), 0U);
}

// A process that packs and is killed: nothing is taken apart.
void pack_and_be_killed(const WriterOptions& options) {
  const pid_t child = fork();
  if (child == 0) {
    auto writer = Writer::create(options);
    if (writer && writer->add_document(long_document())) std::raise(SIGKILL);
    std::_Exit(1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
}

TEST_F(DatasetTest, WhatAKilledProcessHasLeftIsRemovedByTheNext) {
  const std::string of_a_person = place() + ".part-of-mine";
  fs::create_directory(of_a_person);
  pack_and_be_killed(options());
  EXPECT_EQ(things_in_the_folder(), 2U);
  auto writer = Writer::create(options());
  ASSERT_TRUE(writer) << writer.error().text();
  EXPECT_EQ(things_in_the_folder(), 2U) << "the new one alone, beside what a person has made";
  // One that still writes is left alone.
  pack_and_be_killed(options());
  EXPECT_EQ(things_in_the_folder(), 3U);
  ASSERT_TRUE(writer->add_document(long_document()));
  ASSERT_TRUE(writer->finish());
  EXPECT_TRUE(Dataset::open(place()));
  EXPECT_TRUE(fs::exists(of_a_person));
}

TEST_F(DatasetTest, ADatasetThatHadSteppedAsideForOneThatNeverCameIsPutBack) {
  ASSERT_TRUE(write(options(), {{1}}));
  // As after a kill between the two renames.
  fs::rename(place(), place() + ".part-77.old");
  fs::create_directory(place() + ".part-77");
  const auto refused = write(options(), {{2}});
  ASSERT_FALSE(refused);
  EXPECT_TRUE(has(refused.error().text(), "exists already")) << refused.error().text();
  EXPECT_EQ(read_all(*Dataset::open(place())), (Tokens{1, 999}));
  EXPECT_EQ(things_in_the_folder(), 1U);
}

// A limit on the size of files fails a write as a full disk does, at the byte where the room ends.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int);
};

TEST_F(DatasetTest, AFullDiskIsToldAndLeavesNothing) {
  Result<Description> written = failed("not run");
  {
    const FileSizeLimit limit(100'000);
    written = write(options(), {long_document()});
  }
  ASSERT_FALSE(written);
  EXPECT_TRUE(has(written.error().text(), "cannot write ")) << written.error().text();
  EXPECT_TRUE(has(written.error().text(), "shard-00000.tokens: File too large")) << written.error().text();
  EXPECT_TRUE(has(written.error().remedy(), "make room")) << written.error().remedy();
  EXPECT_EQ(things_in_the_folder(), 0U);
}

TEST(Description, IsReadAsItWasWritten) {
  Description description{.type = TokenType::u32, .vocabulary = 70'000, .end_of_text = 5, .documents = 2};
  description.tokenizer_hash = 0x0123456789abcdef;
  description.shards = {{10, {1}}, {300'000, {2, 0xffffffffffffffff}}};
  const std::string text = write_description(description);
  const auto again = read_description(text);
  ASSERT_TRUE(again) << again.error().text();
  EXPECT_EQ(write_description(*again), text);
  EXPECT_EQ(again->tokens(), 300'010U);
}

TEST(Description, RefusesWhatDoesNotFit) {
  const Description good{.vocabulary = 300, .end_of_text = 256, .documents = 1, .shards = {{10, {1}}}};
  const std::string text = write_description(good);
  const auto refused = [&](const std::string& from, const std::string& to, const std::string& part) {
    std::string changed = text;
    ASSERT_TRUE(has(text, from)) << from;
    changed.replace(changed.find(from), from.size(), to);
    const auto read = read_description(changed);
    ASSERT_FALSE(read) << to;
    EXPECT_TRUE(has(read.error().text(), part)) << read.error().text();
  };
  refused("\"format\": 1", "\"format\": 2", "it is of format 2");
  refused("\"u16\"", "\"u8\"", "'token_type'");
  refused("\"vocabulary\": 300", "\"vocabulary\": 256", "'end_of_text'");
  refused("\"vocabulary\": 300", "\"vocabulary\": -1", "'vocabulary'");
  refused("\"documents\": 1", "\"documents\": 11", "'documents'");
  refused("shard-00000", "../../etc", "'shards.0.file'");
  refused("\"0000000000000001\"", "\"1\"", "'shards.0.block_hashes'");
  refused("\"0000000000000001\"", "", "'shards.0.block_hashes'");
  refused("\"tokens\": 10", "\"tokens\": 99999999999999999999", "tokens");
  EXPECT_FALSE(read_description("[]"));
  EXPECT_FALSE(read_description(""));
}

}  // namespace
}  // namespace tutti::dataset
