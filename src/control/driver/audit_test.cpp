// The audit log: a line for all that somebody asks for, in the commit of what comes of it.
#include <gtest/gtest.h>

#include "control/driver/turns.hpp"
#include "control/store/memory/memory_store.hpp"

namespace tutti::driver {
namespace {

using store::CommitResult;

struct AuditTest : testing::Test {
  void SetUp() override {
    ASSERT_TRUE(turns->load().ok());
    const std::vector<people::Grant> roles{{people::Role::user, "default"}};
    ASSERT_TRUE(happen(cluster::SetPerson{.name = "ada", .grants = roles}).ok());
    ASSERT_TRUE(happen(cluster::IssueToken{{.id = "t1", .person = "ada", .hash = "h"}}).ok());
    before = log().size();
  }

  void start_again() {
    turns = std::make_unique<Turns>(store, [this] { return now; });
    ASSERT_TRUE(turns->load().ok());
  }
  Result<std::vector<cluster::JobId>> happen(cluster::Event event,
                                             const people::Credential& by = people::root_credential,
                                             const std::string& from = "10.0.0.1") {
    std::vector<Item> items;
    items.push_back({std::move(event), [](auto) {}, nullptr, std::nullopt, by, from});
    return turns->turn(std::move(items), false).answers.front().result;
  }
  // As they are stored.
  std::vector<std::string> log() {
    std::vector<std::string> lines;
    const auto contents = store.load();
    for (const auto& [key, value] : contents->objects) {
      if (!key.starts_with("audit/")) continue;
      std::string_view rest = value;
      while (!rest.empty()) {
        lines.emplace_back(rest.substr(0, rest.find('\n')));
        rest.remove_prefix(rest.find('\n') + 1);
      }
    }
    return lines;
  }
  // Those that came since.
  std::vector<std::string> news() {
    const auto all = log();
    return {all.begin() + static_cast<std::ptrdiff_t>(before), all.end()};
  }
  void expect_whole() {
    audit::Head head;
    for (const std::string& line : log()) {
      const auto next = audit::check_line(line, head);
      ASSERT_TRUE(next.ok()) << next.error().text();
      head = *next;
    }
    EXPECT_EQ(head, turns->state().audit.head);
  }
  static cluster::Submit a_job(const std::string& queue = "default") {
    cluster::JobSpec spec;
    spec.command = {"true"};
    spec.name = "learn";
    spec.user = "somebody";
    spec.queue = queue;
    return {{spec}};
  }
  static bool has(const std::string& line, const std::string& part) {
    return line.find(part) != std::string::npos;
  }

  store::MemoryStore store;
  Instant now{1000s};
  std::unique_ptr<Turns> turns = std::make_unique<Turns>(store, [this] { return now; });
  std::size_t before = 0;
};

TEST_F(AuditTest, WhoAskedForWhatFromWhereAndWhatCameOfIt) {
  ASSERT_TRUE(happen(a_job(), {.token = "t1"}, "10.0.0.7").ok());
  ASSERT_TRUE(happen(cluster::SetQueue{.name = "research", .guarantee = 2'000}).ok());
  const auto lines = news();
  ASSERT_EQ(lines.size(), 2U);
  for (const std::string part : {R"("who":"ada")", R"("token":"t1")", R"("from":"10.0.0.7")",
                                 R"("verb":"submit")", R"("object":"job 1")", "'learn' of ada in default"})
    EXPECT_TRUE(has(lines[0], part)) << part << " is not in " << lines[0];
  EXPECT_TRUE(has(lines[1], R"("who":"admin")") && has(lines[1], R"("after":"guarantee 2,)")) << lines[1];
  EXPECT_FALSE(has(lines[1], "refused"));
  expect_whole();
}

TEST_F(AuditTest, RefusalsAreLinesToo) {
  EXPECT_FALSE(happen(cluster::RemoveQueue{"default"}, {.token = "t1"}).ok());
  EXPECT_FALSE(happen(cluster::RemoveQueue{"nowhere"}).ok());
  EXPECT_FALSE(happen(cluster::Drain{"a"}, {.token = "gone"}).ok());
  const auto lines = news();
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_TRUE(has(lines[0], R"("who":"ada")") && has(lines[0], "may not change the queue")) << lines[0];
  EXPECT_TRUE(has(lines[1], "nowhere") && has(lines[1], R"("refused":)")) << lines[1];
  EXPECT_TRUE(has(lines[2], R"("token":"gone")") && has(lines[2], "opens nothing any more")) << lines[2];
  expect_whole();
}

// Who is refused without end writes neither the disk full nor over what others did.
TEST_F(AuditTest, OfManyRefusalsOnlySoManyAreWrittenAndTheOthersAreCounted) {
  const int tries = 1'000;
  for (int at = 0; at < tries; ++at) {
    EXPECT_FALSE(happen(cluster::RemoveQueue{"default"}, {.token = "t1"}, "10.0.0.66").ok());
  }
  const std::size_t written = news().size();
  EXPECT_EQ(written, static_cast<std::size_t>(refusals_max.burst));
  EXPECT_FALSE(happen(cluster::RemoveQueue{"default"}, {.token = "t1"}, "10.0.0.7").ok());
  const std::string next = news().back();
  EXPECT_TRUE(has(next, "\"left_out\":" + std::to_string(static_cast<std::size_t>(tries) - written))) << next;
  expect_whole();
}

TEST_F(AuditTest, WhatIsNotStoredIsNotInTheLogAndWhatIsIs) {
  store.fail_next(CommitResult::Status::unknown, false);
  EXPECT_FALSE(happen(cluster::SetQueue{.name = "lost"}).ok());
  EXPECT_TRUE(news().empty());
  now += 2s;
  turns->turn({}, false);
  store.fail_next(CommitResult::Status::unknown, true);
  static_cast<void>(happen(cluster::SetQueue{.name = "landed"}));
  now += 2s;
  turns->turn({}, false);
  ASSERT_TRUE(happen(cluster::SetQueue{.name = "after"}).ok());
  const auto lines = news();
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_TRUE(has(lines[0], "queue landed") && has(lines[1], "queue after"));
  expect_whole();
}

TEST_F(AuditTest, TheChainGoesOnAfterARestartAlsoWhenAllIsInFiles) {
  ASSERT_TRUE(happen(cluster::SetQueue{.name = "a"}).ok());
  const audit::Head head = turns->state().audit.head;
  start_again();
  EXPECT_EQ(turns->state().audit.head, head);
  std::vector<Item> items;
  items.push_back({cluster::AuditShelved{head.last}, nullptr, nullptr});
  turns->turn(std::move(items), false);
  EXPECT_EQ(log().size(), 1U) << "the newest stays, so that the next one can follow it";
  start_again();
  ASSERT_TRUE(happen(cluster::SetQueue{.name = "b"}).ok());
  EXPECT_TRUE(audit::check_line(log().back(), head).ok());
}

// Its files are on a disk that does not take them: what cannot be told later on is not done.
TEST_F(AuditTest, WhereFilesCannotBeWrittenNothingIsChangedAnyMoreButWhatEnds) {
  ASSERT_TRUE(happen(a_job()).ok());
  const std::string name(cluster::queue_name_max, 'x');
  while (turns->state().audit.bytes <= cluster::audit_waiting_bytes_max) {
    std::vector<Item> items;
    for (int at = 0; at < 2'000; ++at)
      items.push_back({cluster::SetQueue{.name = name}, [](auto) {}, nullptr, std::nullopt,
                       people::root_credential, "10.0.0.1"});
    turns->turn(std::move(items), false);
  }
  const auto refused = happen(cluster::SetQueue{.name = "a"});
  ASSERT_FALSE(refused.ok());
  EXPECT_TRUE(has(refused.error().text(), "the audit log cannot be written")) << refused.error().text();
  EXPECT_TRUE(happen(cluster::Cancel{cluster::JobId(1), ""}).ok());
  std::vector<Item> items;
  items.push_back({cluster::AuditShelved{turns->state().audit.head.last}, nullptr, nullptr});
  turns->turn(std::move(items), false);
  EXPECT_TRUE(happen(cluster::SetQueue{.name = "a"}).ok());
}

}  // namespace
}  // namespace tutti::driver
