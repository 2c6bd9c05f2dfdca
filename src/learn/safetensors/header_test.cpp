#include "learn/safetensors/header.hpp"

#include <gtest/gtest.h>

#include "base/bytes.hpp"
#include "learn/safetensors/made_file_test.hpp"

namespace tutti::safetensors {
namespace {

// Why such a file is refused; "" if it is not.
std::string why_not(const std::string& json, std::size_t data_bytes) {
  const std::string file = made_file(json, std::string(data_bytes, 'x'));
  const auto header = parse_header(as_bytes(file), file.size());
  return header ? "" : header.error().text();
}

TEST(Header, IsReadAsPublished) {
  // Written by hand from the description of the format: a scalar, an empty tensor, spaces behind the object.
  const std::string file = made_file(
      R"({"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]},"__metadata__":{"format":"pt"},)"
      R"("a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"none":{"dtype":"I64","shape":[0,7],"data_offsets":[16,16]}}  )",
      std::string(16, 'x'));
  const auto header = parse_header(as_bytes(file), file.size());
  ASSERT_TRUE(header) << header.error().text();
  const std::uint64_t data = file.size() - 16;
  ASSERT_EQ(header->entries.size(), 3U);
  EXPECT_EQ(*header->find("a"), (Entry{"a", Type::f32, {}, data, data + 4}));
  EXPECT_EQ(*header->find("b"), (Entry{"b", Type::bf16, {2, 3}, data + 4, data + 16}));
  EXPECT_EQ(*header->find("none"), (Entry{"none", Type::i64, {0, 7}, data + 16, data + 16}));
  EXPECT_EQ(header->find("c"), nullptr);
  EXPECT_EQ(header->metadata, (Metadata{{"format", "pt"}}));
}

TEST(Header, OfALayoutIsReadBack) {
  const Layout layout = lay_out(
      {{"z", Type::f16, {5}}, {"a \"quoted\" ü", Type::f32, {2, 2}}, {"scalar", Type::u8, {}}}, {{"k", "v"}});
  EXPECT_EQ(layout.header.size() % 8, 0U);
  EXPECT_EQ(layout.file_bytes, layout.header.size() + 27);
  EXPECT_EQ(layout.entries[0].begin, layout.header.size()) << "in the order given";
  EXPECT_EQ(layout.entries[1].begin, layout.entries[0].end);
  const auto header = parse_header(as_bytes(layout.header), layout.file_bytes);
  ASSERT_TRUE(header) << header.error().text();
  EXPECT_EQ(header->entries.size(), 3U);
  for (const Entry& entry : layout.entries) EXPECT_EQ(*header->find(entry.name), entry);
  EXPECT_EQ(header->metadata, (Metadata{{"k", "v"}}));
  EXPECT_TRUE(parse_header(as_bytes(lay_out({}, {}).header), lay_out({}, {}).file_bytes))
      << "no tensors at all";
}

TEST(Header, WithAWrongLengthIsRefused) {
  const auto why = [](const std::string& file, std::uint64_t file_bytes) {
    const auto header = parse_header(as_bytes(file), file_bytes);
    return header ? "" : header.error().message();
  };
  EXPECT_EQ(why("", 0), "the file is too short for a header");
  EXPECT_EQ(why("1234567", 7), "the file is too short for a header");
  EXPECT_EQ(why(made_length(3) + "{}", 10), "the header is longer than the file");
  EXPECT_EQ(why(made_length(100'000'001), 1'000'000'000), "the header is longer than 100 MB");
  EXPECT_EQ(why(made_length(~std::uint64_t{0}), ~std::uint64_t{0}), "the header is longer than 100 MB");
  EXPECT_EQ(why(made_length(20) + "{}", 28), "the header is cut off");
}

TEST(Header, ThatIsNoObjectOfTensorsIsRefused) {
  for (const char* json : {"", "[]", "{", "nonsense", "{\"a\":\"\xff\"}"}) {
    EXPECT_EQ(why_not(json, 0), "the header is no JSON object") << json;
  }
  EXPECT_EQ(why_not(R"({"__metadata__":[]})", 0), "the metadata are no JSON object");
  EXPECT_EQ(why_not(R"({"__metadata__":{"a":1}})", 0), "the metadata hold something else than text");
  const std::string a = R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  EXPECT_EQ(why_not("{" + a + "}", 1), "");
  EXPECT_EQ(why_not("{" + a + "," + a + "}", 1), "the header has a key twice");
  EXPECT_EQ(why_not(R"({"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1),
            "the header has a key twice");
}

TEST(Header, WithAWrongFieldIsRefused) {
  const auto why = [](const std::string& fields) { return why_not(R"({"t\u001b":{)" + fields + "}}", 4); };
  const std::string in = R"(tensor "t\u001b" : )";
  EXPECT_EQ(why(R"("dtype":"F32","shape":[1],"data_offsets":[0,4])"), "");
  EXPECT_EQ(why(R"("dtype":"F32","shape":[1])"),
            in + "it has other fields than dtype, shape and data_offsets");
  EXPECT_EQ(why(R"("dtype":32,"shape":[1],"data_offsets":[0,4])"), in + "its dtype is missing or no word");
  EXPECT_EQ(why(R"("dtype":"F31","shape":[1],"data_offsets":[0,4])"), in + "its dtype is not known");
  EXPECT_EQ(why(R"("dtype":"F32","sharp":[1],"data_offsets":[0,4])"), in + "its shape is missing");
  for (const char* shape : {"1", "[-1]", "[1.0]", "[\"1\"]", "[9223372036854775808]",
                            "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]"}) {
    EXPECT_EQ(why(R"("dtype":"F32","data_offsets":[0,4],"shape":)" + std::string(shape)),
              in + "its shape is no list of sizes");
  }
  for (const char* offsets : {"4", "[4]", "[0,4,8]", "[-1,3]", "[0,\"4\"]"}) {
    EXPECT_EQ(why(R"("dtype":"F32","shape":[1],"data_offsets":)" + std::string(offsets)),
              in + "its data_offsets are no two numbers");
  }
  for (const char* offsets : {"[4,0]", "[1,5]", "[0,18446744073709551615]"}) {
    EXPECT_EQ(why(R"("dtype":"F32","shape":[1],"data_offsets":)" + std::string(offsets)),
              in + "its bytes do not lie inside the file");
  }
  for (const char* shape : {"[2]", "[4611686018427387905]", "[2147483648,2147483648,4]"}) {
    EXPECT_EQ(why(R"("dtype":"F32","data_offsets":[0,4],"shape":)" + std::string(shape)),
              in + "its bytes are not as many as its shape asks for");
  }
}

TEST(Header, WhoseTensorsDoNotShareTheBytesIsRefused) {
  const auto two = [](const std::string& first, const std::string& second) {
    return R"({"a":{"dtype":"U8","shape":[2],"data_offsets":)" + first +
           R"(},"b":{"dtype":"U8","shape":[2],"data_offsets":)" + second + "}}";
  };
  EXPECT_EQ(why_not(two("[2,4]", "[0,2]"), 4), "");
  EXPECT_EQ(why_not(two("[0,2]", "[1,3]"), 3), "tensor \"b\" : its bytes overlap another's");
  EXPECT_EQ(why_not(two("[0,2]", "[0,2]"), 2), "tensor \"b\" : its bytes overlap another's");
  EXPECT_EQ(why_not(two("[0,2]", "[3,5]"), 5), "tensor \"b\" : there is a gap before its bytes");
  EXPECT_EQ(why_not(two("[1,3]", "[3,5]"), 5), "tensor \"a\" : there is a gap before its bytes");
  EXPECT_EQ(why_not(two("[0,2]", "[2,4]"), 5), "the file goes on behind its tensors");
}

}  // namespace
}  // namespace tutti::safetensors
