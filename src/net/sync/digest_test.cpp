#include "net/sync/digest.hpp"

#include <fcntl.h>

#include "base/bytes.hpp"
#include "base/files/descriptor.hpp"
#include "net/sync/folder_test.hpp"

namespace tutti::sync {
namespace {

// The examples of FIPS 180.
constexpr const char* hash_of_nothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
constexpr const char* hash_of_abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

class Digest : public FolderTest {};

TEST_F(Digest, IsTheOneOfTheStandard) {
  EXPECT_EQ(hash_bytes({}), hash_of_nothing);
  EXPECT_EQ(hash_bytes(as_bytes("abc")), hash_of_abc);
}

TEST_F(Digest, OfAFileIsTheOneOfItsBytes) {
  const std::string longer_than_a_buffer(200'000, 'x');
  write("empty", "");
  write("long", longer_than_a_buffer);
  EXPECT_EQ(hash_file(path("empty")).value(), hash_of_nothing);
  EXPECT_EQ(hash_file(path("long")).value(), hash_bytes(as_bytes(longer_than_a_buffer)));
  const files::FileDescriptor parts(open(path("long").c_str(), O_RDONLY));
  const auto head = std::string_view(longer_than_a_buffer).substr(0, 70'000);
  const auto tail = std::string_view(longer_than_a_buffer).substr(70'000);
  EXPECT_EQ(hash_descriptor(parts.get(), "", Bytes(70'000)).value(), hash_bytes(as_bytes(head)));
  EXPECT_EQ(hash_descriptor(parts.get(), "").value(), hash_bytes(as_bytes(tail)));
  EXPECT_FALSE(hash_file(path("absent")));
  EXPECT_FALSE(hash_file(folder()));
}

TEST_F(Digest, HasOneSpelling) {
  EXPECT_TRUE(is_hash(hash_of_abc));
  EXPECT_FALSE(is_hash(""));
  EXPECT_FALSE(is_hash(std::string(63, 'a')));
  EXPECT_FALSE(is_hash(std::string(65, 'a')));
  EXPECT_FALSE(is_hash(std::string(64, 'A')));
  EXPECT_FALSE(is_hash(std::string(63, 'a') + '/'));
}

}  // namespace
}  // namespace tutti::sync
