// Steps to another authority, and what the audit log says of them.
#include "control/controller/signing_test.hpp"

namespace tutti::controller {
namespace {

struct RotatingTest : Signing {
  net::Response rotate() { return ask_as_admin("POST", "authority/rotate", "{}"); }
  bool has_next() const { return std::filesystem::exists(folder_ + "/authority-next.pem"); }
};

TEST_F(RotatingTest, AStepIsInTheLogBeforeItIsTaken) {
  const auto answer = rotate();
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_TRUE(has_next());
  const std::string lines = log();
  const std::size_t begins = lines.find("another one is made, and trusted beside the one that signs");
  const std::size_t ends = lines.find(registrar_.fingerprint() + " signs");
  EXPECT_LT(begins, ends) << lines;
  EXPECT_NE(ends, std::string::npos) << lines;
}

// Else somebody could become everybody's authority in secret.
TEST_F(RotatingTest, WithoutALineInTheLogNoStepIsTaken) {
  store_.full = true;
  const auto answer = rotate();
  EXPECT_EQ(answer.status, 503) << answer.body;
  EXPECT_FALSE(has_next());
  EXPECT_EQ(log(), "");
}

TEST_F(RotatingTest, AStepThatFailsIsInTheLogAsSuch) {
  std::filesystem::create_directory(folder_ + "/authority-next.pem.made");
  const auto answer = rotate();
  EXPECT_EQ(answer.status, 503) << answer.body;
  EXPECT_FALSE(has_next());
  EXPECT_NE(log().find(R"("refused":)"), std::string::npos) << log();
}

}  // namespace
}  // namespace tutti::controller
