#include "control/people/door.hpp"

#include <gtest/gtest.h>

namespace tutti::people {
namespace {

const Instant noon = Instant() + 1000h;

People two_people() {
  People people;
  people.persons["ada"] = {.name = "ada", .grants = {{Role::user, "q"}}};
  people.persons["bob"] = {.name = "bob", .grants = {{Role::viewer, ""}}};
  add(people, {.id = "t1", .person = "ada", .hash = "aa"});
  add(people, {.id = "t2", .person = "bob", .hash = "bb", .expires_at = noon});
  return people;
}

TEST(Doors, ATokenOpensForItsPersonWithItsSecretUntilItExpires) {
  Doors doors;
  doors.change(all_doors(two_people()));
  const std::optional<Caller> caller = doors.open("t1", "aa", noon);
  ASSERT_TRUE(caller);
  EXPECT_EQ(caller->name, "ada");
  EXPECT_EQ(caller->grants, (std::vector<Grant>{{Role::user, "q"}}));
  EXPECT_FALSE(doors.open("t1", "bb", noon)) << "another one's";
  EXPECT_FALSE(doors.open("t1", "", noon));
  EXPECT_FALSE(doors.open("t1", "aaa", noon));
  EXPECT_FALSE(doors.open("", "", noon));
  EXPECT_TRUE(doors.open("t2", "bb", noon - 1ns));
  EXPECT_FALSE(doors.open("t2", "bb", noon));
}

TEST(Doors, WhatChangesIsFollowedAndNothingElse) {
  People people = two_people();
  Doors doors;
  doors.change(all_doors(people));
  people.persons["ada"].blocked = true;
  const DoorChanges changes = doors_of(people, {}, {"ada"});
  EXPECT_EQ(changes.persons.size(), 1U);
  EXPECT_TRUE(changes.tokens.empty());
  doors.change(changes);
  EXPECT_FALSE(doors.open("t1", "aa", noon));
  EXPECT_TRUE(doors.open("t2", "bb", noon - 1s));
  remove_token(people, "t2");
  doors.change(doors_of(people, {"t2"}, {}));
  EXPECT_FALSE(doors.open("t2", "bb", noon - 1s));
  people.persons["ada"].blocked = false;
  doors.change(all_doors(people));
  EXPECT_TRUE(doors.open("t1", "aa", noon));
}

// Of many persons with many tokens, somebody removes a queue in which all of them have a role.
TEST(Doors, TheRolesOfAPersonAreToldOnceHoweverManyTokensHeHas) {
  People people = two_people();
  for (std::size_t at = 0; at < tokens_per_person_max; ++at)
    add(people, {.id = "a" + std::to_string(at), .person = "ada", .hash = "h" + std::to_string(at)});
  Doors doors;
  doors.change(all_doors(people));
  people.persons["ada"].grants = {{Role::viewer, "p"}};
  const DoorChanges changes = doors_of(people, {}, {"ada", "bob"});
  EXPECT_TRUE(changes.tokens.empty());
  EXPECT_EQ(changes.persons.size(), 2U);
  doors.change(changes);
  EXPECT_EQ(doors.open("a7", "h7", noon)->grants, (std::vector<Grant>{{Role::viewer, "p"}}));
  people.persons.erase("ada");
  doors.change(doors_of(people, {}, {"ada"}));
  EXPECT_FALSE(doors.open("a7", "h7", noon));
}

TEST(Doors, ATokenNamesItsId) {
  const std::string text = text_of_token("0123456789abcdef", "secret");
  EXPECT_EQ(id_in(text), "0123456789abcdef");
  for (const char* other :
       {"", "tutti-", "tutti-0123456789abcdef", "tutti-0123456789abcdef-", "tutti-0123456789ABCDEF-x",
        "tutti-0123456789abcde-xx", "0123456789abcdef-secret", "tutti_0123456789abcdef-secret"})
    EXPECT_EQ(id_in(other), "") << other;
}

}  // namespace
}  // namespace tutti::people
