#include "cli/url.hpp"

#include <gtest/gtest.h>

namespace tutti::cli {
namespace {

TEST(Url, KeepsThePathBelowWhichAServerAnswers) {
  const auto prefix = [](const std::string& url) {
    const auto target = parse_url(url, "");
    return target ? target->prefix : "refused";
  };
  EXPECT_EQ(prefix("http://127.0.0.1:8000"), "");
  EXPECT_EQ(prefix("http://127.0.0.1:8000/"), "");
  EXPECT_EQ(prefix("http://127.0.0.1:8000/v1"), "");
  EXPECT_EQ(prefix("http://127.0.0.1:8000/v1/"), "");
  EXPECT_EQ(prefix("http://127.0.0.1:8000/proxy"), "/proxy");
  EXPECT_EQ(prefix("https://host/a/b/v1"), "/a/b");
  EXPECT_EQ(prefix("https://host/openai/v1//"), "/openai");
  EXPECT_EQ(prefix("http://host/a b"), "refused");
  EXPECT_EQ(prefix("http://host/a?b=c"), "refused");
  EXPECT_EQ(prefix("http://host/a\r\nHost: x"), "refused");
  EXPECT_EQ(parse_url("https://host/a", "")->port, 443);
  EXPECT_EQ(parse_url("http://host/a", "")->port, 80);
}

}  // namespace
}  // namespace tutti::cli
