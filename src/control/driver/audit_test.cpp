// The audit log: a line for all that somebody asks for, in the commit of what comes of it.
#include <gtest/gtest.h>

#include "control/driver/full_store_test.hpp"
#include "control/driver/turns.hpp"

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
  // What nobody asks for.
  void hear(cluster::Event event) {
    std::vector<Item> items;
    items.push_back({std::move(event), nullptr, nullptr});
    turns->turn(std::move(items), false);
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
  // Those lines that tell of one.
  std::vector<std::string> refusals() {
    auto lines = news();
    std::erase_if(lines, [](const std::string& line) { return !has(line, "may not change the queue"); });
    return lines;
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

  FullStore store;
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
  EXPECT_EQ(refusals().size(), static_cast<std::size_t>(refusals_max.burst) + 1);
  now += left_out_told_every;
  ASSERT_TRUE(happen(cluster::SetQueue{.name = "a"}).ok());
  std::uint64_t left_out = 0;
  std::size_t lines = 0;
  for (const std::string& line : news()) {
    const std::size_t at = line.find("\"left_out\":");
    if (at == std::string::npos) continue;
    EXPECT_TRUE(has(line, R"("who":"ada")") && has(line, R"("from":"10.0.0.66")")) << line;
    left_out += std::stoul(line.substr(at + 11));
    ++lines;
  }
  EXPECT_EQ(left_out, static_cast<std::uint64_t>(tries) - refusals().size());
  EXPECT_EQ(lines, 2U) << "at once, and again a minute later";
  expect_whole();
}

// Somebody who asks for one thing without end hides neither another thing nor another person.
TEST_F(AuditTest, NoRefusalHidesBehindOthers) {
  for (int at = 0; at < 1'000; ++at)
    EXPECT_FALSE(happen(cluster::RemoveQueue{"default"}, {.token = "t1"}, "10.0.0.66").ok());
  EXPECT_FALSE(happen(cluster::Drain{"a"}, {.token = "t1"}, "10.0.0.66").ok());
  EXPECT_TRUE(has(news().back(), "drain")) << news().back();
  EXPECT_FALSE(happen(cluster::RemoveQueue{"default"}, {.token = "gone"}, "10.0.0.66").ok());
  EXPECT_TRUE(has(news().back(), R"("token":"gone")")) << news().back();
}

// Whoever is nobody may come from any number of addresses, and many persons may be at it together.
TEST_F(AuditTest, NobodyHidesWhatAPersonIsRefused) {
  const auto flood = [&](const people::Credential& by, const std::string& from) {
    for (int at = 0; at < 200; ++at) EXPECT_FALSE(happen(cluster::RemoveQueue{"default"}, by, from).ok());
  };
  for (int at = 0; at < 20; ++at) {
    flood({.token = "gone"}, "10.0.1." + std::to_string(at));
  }
  EXPECT_FALSE(happen(cluster::Drain{"a"}, {.token = "t1"}).ok());
  EXPECT_TRUE(has(news().back(), "drain") && has(news().back(), R"("who":"ada")")) << news().back();
  for (int at = 0; at < 20; ++at) {
    const std::string name = "u" + std::to_string(at);
    ASSERT_TRUE(happen(cluster::SetPerson{.name = name, .grants = std::vector<people::Grant>()}).ok());
    ASSERT_TRUE(happen(cluster::IssueToken{{.id = name, .person = name, .hash = name}}).ok());
    flood({.token = name}, "10.0.0.1");
  }
  EXPECT_FALSE(happen(cluster::Resume{"a"}, {.token = "t1"}).ok());
  EXPECT_TRUE(has(news().back(), "resume") && has(news().back(), R"("who":"ada")")) << news().back();
  expect_whole();
}

// Whoever was not believed is not called what he says he is.
TEST_F(AuditTest, WhoCouldNotJoinIsNobody) {
  cluster::Member member;
  member.name = "n1";
  std::vector<Item> items;
  items.push_back(
      {cluster::Join{"no hash", member}, [](auto) {}, nullptr, std::nullopt, std::nullopt, "10.0.0.66"});
  EXPECT_FALSE(turns->turn(std::move(items), false).answers.front().result.ok());
  ASSERT_EQ(news().size(), 1U);
  EXPECT_FALSE(has(news().back(), "\"who\"")) << news().back();
  EXPECT_TRUE(has(news().back(), "node n1") && has(news().back(), R"("from":"10.0.0.66")")) << news().back();
}

// Nor in the count of those of whom there is no line.
TEST_F(AuditTest, WhoCouldNotBeLetInWhileNothingWasStoredIsNobody) {
  store.full = true;
  EXPECT_FALSE(happen(cluster::SetQueue{.name = "lost"}).ok());
  cluster::Member member;
  member.name = "n1";
  std::vector<Item> items;
  items.push_back(
      {cluster::Join{"no hash", member}, [](auto) {}, nullptr, std::nullopt, std::nullopt, "10.0.0.66"});
  EXPECT_FALSE(turns->turn(std::move(items), false).answers.front().result.ok());
  store.full = false;
  now += 2s;
  ASSERT_TRUE(happen(cluster::SetQueue{.name = "after"}).ok());
  const auto lines = news();
  const auto counted = std::find_if(lines.begin(), lines.end(), [](const std::string& line) {
    return has(line, R"("left_out":1)") && has(line, R"("from":"10.0.0.66")");
  });
  ASSERT_NE(counted, lines.end());
  EXPECT_FALSE(has(*counted, "\"who\"")) << *counted;
}

// While nothing can be stored refusals are counted, and told of when it can be.
TEST_F(AuditTest, RefusalsThatCannotBeStoredAreCounted) {
  store.fail_next(CommitResult::Status::unknown, false);
  EXPECT_FALSE(happen(cluster::SetQueue{.name = "lost"}).ok());
  EXPECT_FALSE(happen(cluster::Drain{"a"}, {.token = "t1"}).ok());
  now += 2s;
  turns->turn({}, false);
  ASSERT_TRUE(happen(cluster::SetQueue{.name = "after"}).ok());
  const auto lines = news();
  EXPECT_TRUE(std::any_of(lines.begin(), lines.end(), [](const std::string& line) {
    return has(line, R"("who":"ada")") && has(line, R"("left_out":1)");
  }));
  expect_whole();
}

// What is told of them is lost with a turn that is not stored, and nothing that was numbered.
TEST_F(AuditTest, WhileNothingCanBeStoredNoLineIsNumbered) {
  store.fail_next(CommitResult::Status::unknown, false);
  EXPECT_FALSE(happen(cluster::SetQueue{.name = "lost"}).ok());
  EXPECT_FALSE(happen(cluster::Drain{"a"}, {.token = "t1"}).ok());
  turns->turn({}, false);
  turns->turn({}, false);
  now += 2s;
  turns->turn({}, false);
  ASSERT_TRUE(happen(cluster::SetQueue{.name = "after"}).ok());
  expect_whole();
}

TEST_F(AuditTest, RefusalsOfATurnThatIsNotStoredAreCounted) {
  store.fail_next(CommitResult::Status::unknown, false);
  EXPECT_FALSE(happen(cluster::Drain{"a"}, {.token = "t1"}).ok());
  EXPECT_FALSE(turns->health().ok);
  now += 2s;
  ASSERT_TRUE(happen(cluster::SetQueue{.name = "after"}).ok());
  const auto lines = news();
  EXPECT_TRUE(std::any_of(lines.begin(), lines.end(), [](const std::string& line) {
    return has(line, R"("who":"ada")") && has(line, R"("left_out":1)");
  }));
  expect_whole();
}

// What was put aside on the disk is for what makes room, and not for whoever asks without end.
TEST_F(AuditTest, OnAFullDiskWhatIsRefusedOrChangesNothingTakesNothingOfTheReserve) {
  const people::Credential ada{.token = "t1"};
  cluster::Hello hello{"a", "", "127.0.0.1", 1, {}, {}};
  hello.inventory.devices = {{"H100", gib(80), "u"}};
  hello.inventory.cpus = 2;
  hear(hello);
  cluster::Submit job = a_job();
  job.specs.front().shape.gpu_share = 1000;
  ASSERT_TRUE(happen(job, ada).ok());
  ASSERT_TRUE(happen(cluster::Cancel{cluster::JobId(1), ""}, ada).ok());
  ASSERT_FALSE(turns->state().jobs.at(cluster::JobId(1)).finished());
  store.full = true;
  const int commits = store.commits;
  const std::size_t lines = log().size();
  for (int at = 0; at < 1'000; ++at) EXPECT_FALSE(happen(cluster::RevokeToken{"0123456789abcdef"}, ada).ok());
  EXPECT_FALSE(turns->health().ok) << "the first of them has found it full";
  for (int at = 0; at < 1'000; ++at) EXPECT_TRUE(happen(cluster::Cancel{cluster::JobId(1), ""}, ada).ok());
  EXPECT_EQ(store.commits, commits);
  EXPECT_EQ(log().size(), lines);
  for (int at = 0; at < 2; ++at) {
    EXPECT_TRUE(happen(cluster::SetPerson{.name = "ada", .blocked = true}).ok());
    EXPECT_TRUE(happen(cluster::Drain{"a"}).ok());
  }
  EXPECT_EQ(store.commits, commits + 2) << "each of them once";
  EXPECT_EQ(log().size(), lines + 2);
  EXPECT_TRUE(has(log().back(), "drain")) << log().back();
  store.full = false;
  now += left_out_told_every;
  ASSERT_TRUE(happen(cluster::SetQueue{.name = "after"}).ok());
  const auto all = log();
  EXPECT_TRUE(std::any_of(all.begin(), all.end(), [](const std::string& line) {
    return has(line, R"("who":"ada")") && has(line, R"("left_out":1000)");
  }));
  expect_whole();
}

// What somebody pastes in place of an id may open something.
TEST_F(AuditTest, NoTokenIsInIt) {
  const std::string token = "tutti-0123456789abcdef-" + std::string(64, 'a');
  EXPECT_FALSE(happen(cluster::RevokeToken{token}, {.token = "t1"}).ok());
  EXPECT_FALSE(happen(cluster::RevokeJoinToken{"tutti_join_" + std::string(64, 'a')}, {.token = "t1"}).ok());
  for (const std::string& line : news()) EXPECT_FALSE(has(line, "aaaaaaaa")) << line;
  EXPECT_EQ(news().size(), 2U);
}

// Nor a letter that ends lines for some readers, or that a terminal obeys.
TEST_F(AuditTest, LettersThatAreObeyedAreShown) {
  EXPECT_FALSE(happen(cluster::Drain{"a\xc2\x9b"
                                     "31m\xe2\x80\xa8"})
                   .ok());
  EXPECT_FALSE(has(news().back(), "\xc2\x9b") || has(news().back(), "\xe2\x80\xa8")) << news().back();
  EXPECT_TRUE(has(news().back(), "u009b")) << news().back();
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
  hear(cluster::AuditShelved{head.last});
  EXPECT_EQ(log().size(), 1U) << "the newest stays, so that the next one can follow it";
  start_again();
  ASSERT_TRUE(happen(cluster::SetQueue{.name = "b"}).ok());
  EXPECT_TRUE(audit::check_line(log().back(), head).ok());
}

// An older copy of the store goes on behind the lines that are in files, also when the turn is lost in which
// it hears of them.
TEST_F(AuditTest, NoNumberOfALineIsUsedTwice) {
  const audit::Head in_files{turns->state().audit.head.last + 5, std::string(64, 'a')};
  store.fail_next(CommitResult::Status::unknown, false);
  hear(cluster::AuditFound{in_files});
  ASSERT_FALSE(turns->health().ok);
  EXPECT_EQ(turns->state().audit.head, in_files);
  EXPECT_TRUE(happen(cluster::RevokeToken{"t1"}).ok()) << "before the store is looked at again";
  auto first = audit::check_line(log().back(), in_files);
  EXPECT_TRUE(first.ok()) << log().back();
  now += 2s;
  ASSERT_TRUE(happen(cluster::SetQueue{.name = "a"}).ok());
  EXPECT_TRUE(audit::check_line(log().back(), std::move(first).value_or(audit::Head())).ok()) << log().back();
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
  const std::size_t bytes = turns->state().audit.bytes;
  EXPECT_FALSE(happen(cluster::RevokeToken{"0123456789abcdef"}, {.token = "t1"}).ok());
  EXPECT_EQ(turns->state().audit.bytes, bytes) << "nobody makes it longer with what is refused";
  hear(cluster::AuditShelved{turns->state().audit.head.last});
  EXPECT_TRUE(happen(cluster::SetQueue{.name = "a"}).ok());
}

}  // namespace
}  // namespace tutti::driver
