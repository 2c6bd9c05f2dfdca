#include "comm/proof.hpp"

#include <gtest/gtest.h>

#include "base/bytes.hpp"

namespace tutti::comm {
namespace {

std::string hex(const std::string& bytes) { return to_hex(as_bytes(bytes)); }

// FIPS 180-4's own examples, and the lengths at which a block more is needed.
TEST(Proof, HashesAsTheStandardSays) {
  EXPECT_EQ(hex(sha256("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex(sha256("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hex(sha256(std::string(1'000'000, 'a'))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

// RFC 4231, cases 1, 2 and 6.
TEST(Proof, KeyedHashesAsTheStandardSays) {
  EXPECT_EQ(hex(keyed_hash(std::string(20, '\x0b'), "Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hex(keyed_hash("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(
      hex(keyed_hash(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First")),
      "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(Proof, ProvesOneIntroductionAlone) {
  const Introduction mine{.hubs = fresh_bytes(), .ranks = fresh_bytes(), .rank = 1, .size = 4, .node = "n1"};
  const std::string proof = proof_of_rank("secret", mine);
  EXPECT_TRUE(is_same_secret(proof, proof_of_rank("secret", mine)));
  EXPECT_FALSE(is_same_secret(proof, proof_of_rank("guessed", mine)));
  EXPECT_FALSE(is_same_secret(proof, proof_of_hub("secret", mine))) << "what one side says is no answer";
  Introduction other = mine;
  other.rank = 2;
  EXPECT_FALSE(is_same_secret(proof, proof_of_rank("secret", other)));
  other = mine;
  other.hubs = fresh_bytes();
  EXPECT_FALSE(is_same_secret(proof, proof_of_rank("secret", other)));
  EXPECT_FALSE(is_same_secret(proof, ""));
}

}  // namespace
}  // namespace tutti::comm
