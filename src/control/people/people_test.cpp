#include "control/people/people.hpp"

#include <gtest/gtest.h>

namespace tutti::people {
namespace {

TEST(People, NamesAreThoseOfAccountsAndNobodyIsCalledAsTheClustersOwnToken) {
  for (const char* name : {"ada", "_x", "a.b-c_9", "x", "ada@example.org"})
    EXPECT_TRUE(check_name(name)) << name;
  for (const char* name : {"", "Ada", "9a", "-a", "@a", ".a", "a b", "a/b", "a\n", "admin", "ä"})
    EXPECT_FALSE(check_name(name)) << name;
  EXPECT_TRUE(check_name(std::string(name_bytes_max, 'a')));
  EXPECT_FALSE(check_name(std::string(name_bytes_max + 1, 'a')));
}

TEST(People, OfTwoRolesInOneQueueTheHigherCounts) {
  const auto tidy = tidy_grants({{Role::viewer, "b"}, {Role::queue_admin, "a"}, {Role::user, "b"}});
  ASSERT_TRUE(tidy);
  EXPECT_EQ(*tidy, (std::vector<Grant>{{Role::queue_admin, "a"}, {Role::user, "b"}}));
  EXPECT_FALSE(tidy_grants({{Role::operate, "a"}})) << "that is for the whole cluster";
  EXPECT_FALSE(tidy_grants({{Role::admin, "a"}}));
  EXPECT_TRUE(tidy_grants({{Role::admin, ""}}));
  std::vector<Grant> many;
  for (std::size_t at = 0; at <= grants_per_person_max; ++at)
    many.push_back({Role::user, "q" + std::to_string(at)});
  EXPECT_FALSE(tidy_grants(many));
}

TEST(People, RolesAreReadAsTheyAreWritten) {
  for (const Role role : roles) EXPECT_EQ(role_named(name_of(role)), role);
  EXPECT_FALSE(role_named("root"));
  EXPECT_FALSE(role_named(""));
  EXPECT_EQ(text_of({Role::queue_admin, "a/b"}), "queue-admin:a/b");
  EXPECT_EQ(text_of({Role::operate, ""}), "operator");
}

TEST(People, TokensAreFoundByTheirPersonUntilTheyGo) {
  People people;
  people.persons["ada"] = {.name = "ada"};
  add(people, {.id = "t1", .person = "ada"});
  add(people, {.id = "t2", .person = "ada"});
  remove_token(people, "t1");
  remove_token(people, "t9");
  EXPECT_EQ(people.tokens_of.at("ada"), std::set<TokenId>{"t2"});
  remove_token(people, "t2");
  EXPECT_TRUE(people.tokens_of.empty());
}

}  // namespace
}  // namespace tutti::people
