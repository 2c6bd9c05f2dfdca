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
  const Caller* caller = doors.open("t1", "aa", noon);
  ASSERT_NE(caller, nullptr);
  EXPECT_EQ(caller->name, "ada");
  EXPECT_EQ(caller->grants, (std::vector<Grant>{{Role::user, "q"}}));
  EXPECT_EQ(doors.open("t1", "bb", noon), nullptr) << "another one's";
  EXPECT_EQ(doors.open("t1", "", noon), nullptr);
  EXPECT_EQ(doors.open("t1", "aaa", noon), nullptr);
  EXPECT_EQ(doors.open("", "", noon), nullptr);
  EXPECT_NE(doors.open("t2", "bb", noon - 1ns), nullptr);
  EXPECT_EQ(doors.open("t2", "bb", noon), nullptr);
}

TEST(Doors, WhatChangesIsFollowedAndNothingElse) {
  People people = two_people();
  Doors doors;
  doors.change(all_doors(people));
  people.persons["ada"].blocked = true;
  const DoorChanges changes = doors_of(people, {}, {"ada"});
  ASSERT_EQ(changes.doors.size(), 1U);
  doors.change(changes);
  EXPECT_EQ(doors.open("t1", "aa", noon), nullptr);
  EXPECT_NE(doors.open("t2", "bb", noon - 1s), nullptr);
  remove_token(people, "t2");
  doors.change(doors_of(people, {"t2"}, {}));
  EXPECT_EQ(doors.open("t2", "bb", noon - 1s), nullptr);
  people.persons["ada"].blocked = false;
  doors.change(all_doors(people));
  EXPECT_NE(doors.open("t1", "aa", noon), nullptr);
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
