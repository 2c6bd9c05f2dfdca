#include "serve/load/archive.hpp"

#include <cstring>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "base/prng.hpp"

namespace tutti::serve {
namespace {

void put(std::string& out, std::uint64_t value, std::size_t bytes) {
  for (std::size_t nth = 0; nth < bytes; ++nth) out += static_cast<char>(value >> (8 * nth) & 0xFFU);
}

// A zip file of empty entries; `large` writes the records for files beyond 4 GiB.
std::string zip_of(const std::vector<std::string>& names, bool large = false) {
  std::string out = "PK\3\4 what is in it is not looked at";
  const std::size_t begin = out.size();
  for (const std::string& name : names) {
    out += std::string("PK\1\2", 4) + std::string(24, '\0');
    put(out, name.size(), 2);
    out += std::string(16, '\0') + name;
  }
  const std::size_t end = out.size();
  if (large) {
    out += std::string("PK\6\6", 4) + std::string(36, '\0');
    put(out, end - begin, 8);
    put(out, begin, 8);
    out += std::string("PK\6\7", 4) + std::string(4, '\0');
    put(out, end, 8);
    out += std::string(4, '\0');
  }
  out += std::string("PK\5\6", 4) + std::string(4, '\0');
  put(out, names.size(), 2);
  put(out, names.size(), 2);
  put(out, large ? 0xFFFFFFFFU : end - begin, 4);
  put(out, large ? 0xFFFFFFFFU : begin, 4);
  put(out, 0, 2);
  return out;
}

Result<std::vector<std::string>> names_in(const std::string& file) {
  return archive_names(file.size(), [&](std::uint64_t begin, std::span<std::byte> buffer) -> Result<> {
    EXPECT_LE(begin, file.size());
    EXPECT_LE(buffer.size(), file.size() - begin);
    std::memcpy(buffer.data(), file.data() + begin, buffer.size());
    return {};
  });
}

TEST(Archive, NamesAreFoundAtTheEnd) {
  const std::vector<std::string> names{"m/code/x.py", "m/constants.pkl", ""};
  for (const bool large : {false, true}) {
    const auto found = names_in(zip_of(names, large));
    ASSERT_TRUE(found) << found.error().text();
    EXPECT_EQ(*found, names);
    const auto behind_it = names_in(zip_of(names, large) + std::string(1000, ' '));
    EXPECT_EQ(behind_it.ok(), true) << "a comment may follow";
  }
}

TEST(Archive, OneThatLiesIsRefusedAndReadsNothingOutside) {
  for (const bool large : {false, true}) {
    const std::string whole = zip_of({"m/code/x.py", "m/constants.pkl"}, large);
    for (std::size_t size = 0; size < whole.size(); ++size)
      EXPECT_FALSE(names_in(whole.substr(0, size))) << size;
    Prng random(large ? 1 : 2);
    for (int round = 0; round < 30'000; ++round) {
      std::string changed = whole;
      for (int change = 0; change < 4; ++change)
        changed[random.below(changed.size())] = static_cast<char>(random.below(256));
      static_cast<void>(names_in(changed).ok());
    }
  }
}

TEST(Archive, SaysWhatItIsInstead) {
  const std::string path = testing::TempDir() + "archive_test.pt";
  const auto said = [&](const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
    const auto checked = check_script(path);
    return checked ? "" : checked.error().text();
  };
  EXPECT_EQ(said(zip_of({"m/code/x.py", "m/constants.pkl", "m/data.pkl"})), "");
  EXPECT_TRUE(looks_like_archive(path));
  EXPECT_NE(said(zip_of({"m/data.pkl", "m/data/0"})).find("no program"), std::string::npos);
  EXPECT_NE(said(zip_of({"holiday.jpg"})).find("no TorchScript archive"), std::string::npos);
  EXPECT_NE(said("PK\3\4").find("too short"), std::string::npos);
  said("GGUF");
  EXPECT_FALSE(looks_like_archive(path));
  std::filesystem::remove(path);
  EXPECT_FALSE(looks_like_archive(path));
  EXPECT_FALSE(looks_like_archive(testing::TempDir()));
  EXPECT_FALSE(check_script(path));
}

}  // namespace
}  // namespace tutti::serve
