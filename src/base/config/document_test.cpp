#include "base/config/document.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

namespace tutti::config {
namespace {

std::string why(std::string_view yaml) {
  const auto document = parse_document(yaml, "job.yaml");
  return document ? "fine" : document.error().text();
}

TEST(Document, KeepsOrderAndLines) {
  const auto document =
      parse_document("name: hello\n\nenv:\n  B: 2\n  A: 1\nlist: [x, y]\nnothing:\n", "job.yaml");
  ASSERT_TRUE(document.ok()) << document.error().text();
  const Value& root = document->root;
  EXPECT_EQ(root.keys, (std::vector<std::string>{"name", "env", "list", "nothing"}));
  EXPECT_EQ(root.find("name")->scalar, "hello");
  EXPECT_EQ(root.find("env")->keys, (std::vector<std::string>{"B", "A"}));
  EXPECT_EQ(root.find("env")->find("A")->line, 5);
  EXPECT_EQ(root.find("list")->items.size(), 2U);
  EXPECT_EQ(root.find("nothing")->kind, Value::Kind::null);
  EXPECT_EQ(root.find("absent"), nullptr);
}

TEST(Document, ErrorsNameFileAndLine) {
  EXPECT_EQ(why("a: 1\nb: [1, 2\n").find("job.yaml:3 : not valid YAML"), 0U) << why("a: 1\nb: [1, 2\n");
  EXPECT_EQ(why("a: 1\nb: 2\na: 3\n"), "job.yaml:3 : the key 'a' stands here twice");
  EXPECT_EQ(why("- 1\n- 2\n"), "job.yaml:1 : expected lines of the form 'key: value'");
  EXPECT_EQ(why("a: 1\n---\nb: 2\n"), "job.yaml:2 : a second document begins here; one file holds one");
  EXPECT_EQ(why("# head\n---\na: 1\n"), "fine");
  EXPECT_NE(why(",-a:b"), "fine") << "yaml-cpp 0.7 loops on this one when asked for all documents";
  EXPECT_EQ(why("? [1, 2]\n: x\n"), "job.yaml:1 : a key must be a word");
  EXPECT_EQ(why(""), "job.yaml : the file is empty");
  const auto document = parse_document("ranks: x\n", "job.yaml");
  EXPECT_EQ(document->error(1, "ranks", "not a number").text(), "job.yaml:1: ranks : not a number");
}

TEST(Document, AQuoteThatIsNeverClosedIsRefusedWhereItBegins) {
  const std::string never = "the quote that begins here is never closed";
  EXPECT_EQ(why("command: \"echo hi\nranks: 2\n"), "job.yaml:1 : " + never);
  EXPECT_EQ(why("ranks: 2\ncommand: 'echo hi\n\n"), "job.yaml:2 : " + never);
  EXPECT_EQ(why("ranks: 2\r\nname: naïve\r\ncommand: \"echo \\\"\r\n"), "job.yaml:3 : " + never);
  EXPECT_EQ(why("command: 'it''s\n"), "job.yaml:1 : " + never);
  EXPECT_EQ(why("command: &x \"echo\n"), "job.yaml:1 : " + never);
  EXPECT_EQ(why("list:\n  - a\n  - \"b\n"), "job.yaml:3 : " + never);
  EXPECT_EQ(why("\xEF\xBB\xBF"
                "command: \"echo hi\n"),
            "job.yaml:1 : " + never);
  EXPECT_NE(why("command: \"echo hi"), "fine");
  EXPECT_EQ(why("a: \"x\"\nb: 'it''s'\nc: \"\\\"\"\nd: it's\ne: |\n  \"open\nf: ''\n"), "fine");
  EXPECT_EQ(why("a: \"folded\n  over lines\"\n"), "fine");
}

TEST(Document, LimitsHoldAgainstHostileFiles) {
  EXPECT_EQ(why(std::string(document_bytes_max + 1, 'x')), "job.yaml : the file is larger than 1 MiB");
  EXPECT_NE(why("a: " + std::string(40, '[') + std::string(40, ']')).find("nested too deeply"),
            std::string::npos);
  EXPECT_NE(why("a: " + std::string(100'000, '[')), "fine");
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int level = 1; level < 10; ++level) {
    const std::string below = "*a" + std::to_string(level - 1);
    bomb += "a" + std::to_string(level) + ": &a" + std::to_string(level) + " [" + below;
    for (int copy = 1; copy < 10; ++copy) bomb += ", " + below;
    bomb += "]\n";
  }
  EXPECT_NE(why(bomb).find("too many values"), std::string::npos) << why(bomb);
  std::string echoes = "a: &a \"" + std::string(500'000, 'x') + "\"\nb: [";
  for (int at = 0; at < 1000; ++at) echoes += "*a, ";
  EXPECT_NE(why(echoes + "x]\n").find("too much text"), std::string::npos);
}

TEST(Document, ReadsFiles) {
  const std::string path = testing::TempDir() + "document_test." + std::to_string(::getpid()) + ".yaml";
  std::ofstream(path) << "name: hello\n";
  const auto document = read_document(path);
  ASSERT_TRUE(document.ok()) << document.error().text();
  EXPECT_EQ(document->name.find("document_test."), 0U);
  EXPECT_EQ(document->root.find("name")->scalar, "hello");
  std::filesystem::remove(path);
  EXPECT_NE(read_document("/nonexistent/job.yaml")
                .error()
                .text()
                .find("cannot read /nonexistent/job.yaml: No such file"),
            std::string::npos);
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_NE(read_document(path).error().text().find("it is no file"), std::string::npos)
      << "and does not wait";
  std::filesystem::remove(path);
  EXPECT_NE(read_document(testing::TempDir()).error().text().find("this is a folder"), std::string::npos);
}

}  // namespace
}  // namespace tutti::config
