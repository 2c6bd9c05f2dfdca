#include "learn/safetensors/file.hpp"

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "base/bytes.hpp"
#include "learn/safetensors/made_file_test.hpp"

namespace tutti::safetensors {
namespace {

class FileTest : public testing::Test {
 protected:
  FileTest() {
    std::string path = (std::filesystem::temp_directory_path() / "tutti-safetensors-XXXXXX").string();
    folder_ = mkdtemp(path.data());
  }
  ~FileTest() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::string write(const std::string& name, const std::string& content) const {
    std::ofstream(path(name), std::ios::binary) << content;
    return path(name);
  }

 private:
  std::string folder_;
};

TEST_F(FileTest, GivesTheBytesOfATensor) {
  const auto file = File::open(write("a", made_file(R"({"t":{"dtype":"U8","shape":[4],"data_offsets":[2,6]},)"
                                                    R"("s":{"dtype":"I16","shape":[],"data_offsets":[0,2]}})",
                                                    "xxdata")));
  ASSERT_TRUE(file) << file.error().text();
  const Entry* entry = file->find("t");
  ASSERT_NE(entry, nullptr);
  std::array<std::byte, 4> bytes{};
  ASSERT_TRUE(file->read(entry->begin, bytes));
  EXPECT_EQ(to_hex(bytes), to_hex(as_bytes("data")));
  EXPECT_EQ(file->header().entries.size(), 2U);
  EXPECT_EQ(file->find("none"), nullptr);
  EXPECT_FALSE(file->read(entry->begin + 1, bytes)) << "the file ends before that";
}

TEST_F(FileTest, ThatIsNoneIsNamed) {
  for (const std::string& damaged :
       {path("missing"), path(""), write("empty", ""), write("short", "1234"),
        write("long", made_length(1000) + "{}"), write("text", "no safetensors file")}) {
    const auto file = File::open(damaged);
    ASSERT_FALSE(file) << damaged;
    EXPECT_NE(file.error().text().find(damaged), std::string::npos) << file.error().text();
  }
}

// The library of Hugging Face reads what is laid out here, and what it writes is read here.
TEST_F(FileTest, AgreesWithTheLibraryOfHuggingFace) {
  if (std::system("/usr/bin/python3 -c 'import numpy, safetensors' 2>/dev/null") != 0) {
    GTEST_SKIP() << "python3 has no safetensors here; Header.IsReadAsPublished reads bytes made by hand";
  }
  const Layout layout = lay_out({{"ours", Type::i16, {2, 2}}, {"scalar", Type::u8, {}}}, {{"format", "np"}});
  const std::string data{1, 0, 2, 0, 3, 0, 4, 0, 9};
  write("ours.safetensors", layout.header + data);
  write("check.py",
        "import sys, numpy\n"
        "from safetensors.numpy import load_file, save_file\n"
        "read = load_file(sys.argv[1] + '/ours.safetensors')\n"
        "assert read['ours'].tolist() == [[1, 2], [3, 4]] and read['scalar'].tolist() == 9\n"
        "save_file({'theirs': numpy.array([[1.5, -2.0]], dtype=numpy.float32)}, sys.argv[1] + "
        "'/theirs.safetensors')\n");
  ASSERT_EQ(std::system(("/usr/bin/python3 " + path("check.py") + " " + path("")).c_str()), 0);
  const auto theirs = File::open(path("theirs.safetensors"));
  ASSERT_TRUE(theirs) << theirs.error().text();
  const Entry* entry = theirs->find("theirs");
  ASSERT_NE(entry, nullptr);
  EXPECT_EQ(entry->shape, (std::vector<std::int64_t>{1, 2}));
  std::array<float, 2> numbers{};
  ASSERT_TRUE(theirs->read(entry->begin, std::as_writable_bytes(std::span(numbers))));
  EXPECT_EQ(numbers, (std::array{1.5F, -2.0F}));
}

}  // namespace
}  // namespace tutti::safetensors
