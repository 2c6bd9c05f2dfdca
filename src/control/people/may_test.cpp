#include "control/people/may.hpp"

#include <gtest/gtest.h>

namespace tutti::people {
namespace {

const Instant now = Instant() + 1000h;

Caller with(std::vector<Grant> grants, const Name& name = "ada") {
  return {.name = name, .grants = std::move(grants)};
}

People people_with(std::vector<Grant> grants, Token token = {}) {
  People people;
  people.persons["ada"] = {.name = "ada", .grants = std::move(grants)};
  token.id = "t1";
  token.person = "ada";
  add(people, std::move(token));
  return people;
}

std::vector<Grant> grants_with(const std::vector<Grant>& grants, const Token& token) {
  const auto caller = caller_of(people_with(grants, token), {.token = "t1"}, now);
  return caller ? caller->grants : std::vector<Grant>{{Role::admin, "nobody at all"}};
}

TEST(May, ARoleHoldsInItsQueueAndInThePartsOfItAndNowhereElse) {
  const Caller ada = with({{Role::user, "research"}});
  EXPECT_TRUE(may_submit(ada, "research"));
  EXPECT_TRUE(may_submit(ada, "research/vision"));
  EXPECT_TRUE(may_see_job(ada, "research/vision")) << "who may more may that, too";
  EXPECT_FALSE(may_submit(ada, "research2"));
  EXPECT_FALSE(may_submit(ada, "resear"));
  EXPECT_FALSE(may_submit(ada, "production"));
  EXPECT_FALSE(has(ada, Role::viewer, everything));
  EXPECT_TRUE(has_somewhere(ada, Role::user));
  EXPECT_FALSE(has_somewhere(ada, Role::queue_admin));
  EXPECT_FALSE(may_see_job(with({}), "research"));
}

TEST(May, AJobIsEndedByWhoseItIsOrByWhoAnswersForTheQueue) {
  EXPECT_TRUE(may_end_job(with({{Role::user, "q"}}), "q", "ada"));
  EXPECT_FALSE(may_end_job(with({{Role::user, "q"}}), "q", "bob"));
  EXPECT_FALSE(may_end_job(with({{Role::viewer, "q"}}), "q", "ada")) << "his role was taken away";
  EXPECT_TRUE(may_end_job(with({{Role::queue_admin, "q"}}), "q/part", "bob"));
  EXPECT_FALSE(may_end_job(with({{Role::queue_admin, "q/part"}}), "q", "bob"));
  EXPECT_TRUE(may_end_job(with({{Role::operate, ""}}), "q", "bob"));
}

TEST(May, NobodyShapesTheShareThatHeHimselfStandsIn) {
  const Caller ada = with({{Role::queue_admin, "research"}});
  EXPECT_TRUE(may_shape_queue(ada, "research/vision"));
  EXPECT_TRUE(may_shape_queue(ada, "research/vision/small"));
  EXPECT_FALSE(may_shape_queue(ada, "research"));
  EXPECT_FALSE(may_shape_queue(ada, "new"));
  EXPECT_TRUE(may_shape_queue(with({{Role::operate, ""}}), "new"));
  EXPECT_FALSE(may_shape_queue(with({{Role::user, ""}}), "research/vision"));
}

TEST(May, NobodyGivesWhatHeHasNotAndNobodyChangesWhoStandsAboveHim) {
  const Caller ada = with({{Role::queue_admin, "research"}});
  EXPECT_TRUE(may_grant(ada, {Role::queue_admin, "research/vision"}));
  EXPECT_FALSE(may_grant(ada, {Role::viewer, "production"}));
  EXPECT_FALSE(may_grant(ada, {Role::viewer, ""}));
  EXPECT_FALSE(may_grant(ada, {Role::operate, ""}));
  const auto somebody = [](std::vector<Grant> grants) {
    return Person{.name = "bob", .grants = std::move(grants)};
  };
  EXPECT_TRUE(may_change_person(ada, somebody({{Role::user, "research"}})));
  EXPECT_FALSE(may_change_person(ada, somebody({{Role::user, "research"}, {Role::viewer, "production"}})));
  EXPECT_FALSE(may_change_person(ada, somebody({}))) << "who has no role is an admin's";
  EXPECT_TRUE(may_change_person(with({{Role::admin, ""}}), somebody({})));
  EXPECT_TRUE(may_let_in(ada, {})) << "who is not there yet is nobody's";
  EXPECT_TRUE(may_let_in(ada, {{Role::user, "research"}}));
  EXPECT_FALSE(may_let_in(with({{Role::user, ""}}), {}));
  // An operator runs the machines, and not the people.
  EXPECT_FALSE(may_grant(with({{Role::operate, ""}}), {Role::operate, ""}));
  EXPECT_FALSE(may_change_person(with({{Role::operate, ""}}), somebody({{Role::admin, ""}})));
  EXPECT_TRUE(may_grant(root_caller(), {Role::admin, ""}));
}

TEST(May, AsWhatSomebodyStandsAboveAnotherOneIsTheHighestOfHisRolesThatHoldsThere) {
  const std::vector<Grant> there{{Role::user, "research/vision"}};
  const std::vector<Grant> lead{{Role::queue_admin, "a"},
                                {Role::queue_admin, "research/vision"},
                                {Role::queue_admin, "research"},
                                {Role::viewer, ""}};
  EXPECT_EQ(highest_over(lead, there), (Grant{Role::queue_admin, "research"}));
  EXPECT_EQ(highest_over({{Role::queue_admin, "research"}, {Role::operate, ""}}, there),
            (Grant{Role::operate, ""}));
  EXPECT_EQ(highest_over({{Role::queue_admin, "a"}}, there), (Grant{Role::admin, ""})) << "nobody knows";
}

TEST(May, ATokenMayNoMoreThanItsPersonAndNoMoreThanItSays) {
  const std::vector<Grant> grants{{Role::operate, ""}};
  EXPECT_EQ(grants_with(grants, {}), grants);
  EXPECT_EQ(grants_with(grants, {.role_max = Role::viewer}), (std::vector<Grant>{{Role::viewer, ""}}));
  EXPECT_EQ(grants_with(grants, {.queue = "a"}), (std::vector<Grant>{{Role::queue_admin, "a"}}));
  EXPECT_EQ(grants_with({{Role::user, "a/b"}}, {.role_max = Role::admin, .queue = "a"}),
            (std::vector<Grant>{{Role::user, "a/b"}}));
  EXPECT_TRUE(grants_with({{Role::user, "a"}}, {.queue = "b"}).empty());
}

TEST(May, ATokenOpensNothingOnceItHasExpiredOrItsPersonIsBlockedOrGone) {
  const auto opens = [](const People& people) { return caller_of(people, {.token = "t1"}, now).has_value(); };
  People people = people_with({{Role::user, ""}}, {.expires_at = now + 1s});
  EXPECT_TRUE(opens(people));
  EXPECT_FALSE(caller_of(people, {.token = "t1"}, now + 1s));
  EXPECT_FALSE(caller_of(people, {.token = "t2"}, now));
  EXPECT_FALSE(caller_of(people, {}, now));
  people.persons["ada"].blocked = true;
  EXPECT_FALSE(opens(people));
  people.persons["ada"].blocked = false;
  EXPECT_EQ(remove_person(people, "ada"), std::vector<TokenId>{"t1"});
  EXPECT_FALSE(opens(people));
  EXPECT_TRUE(people.tokens.empty() && people.tokens_of.empty());
}

TEST(May, WhatIsNotSaidOfATokenIsAsTheOneHasItThatMakesIt) {
  Caller caller = with({{Role::user, "q"}});
  caller.role_max = Role::user;
  caller.queue = "q";
  caller.until = now;
  Token token;
  bound_by(caller, token);
  EXPECT_TRUE(token.role_max == Role::user && token.queue == "q" && token.expires_at == now);
  token = {.role_max = Role::viewer, .queue = "q/part", .expires_at = now - 1s};
  bound_by(caller, token);
  EXPECT_TRUE(token.role_max == Role::viewer && token.queue == "q/part" && token.expires_at == now - 1s);
  token.expires_at = now + 1h;
  bound_by(caller, token);
  EXPECT_EQ(token.expires_at, now);
}

TEST(May, ATokenMakesNoneThatMayMoreOrLivesLongerThanItself) {
  const Person ada{.name = "ada"};
  const Person bob{.name = "bob"};
  const Person robot{.name = "robot", .kind = Kind::service, .grants = {{Role::user, "q"}}};
  Caller caller = with({{Role::queue_admin, "q"}});
  EXPECT_TRUE(may_make_token(caller, ada, {}));
  EXPECT_FALSE(may_make_token(caller, bob, {})) << "he would act in another's name";
  EXPECT_TRUE(may_make_token(caller, robot, {}));
  EXPECT_FALSE(may_make_token(with({{Role::user, "q"}}), robot, {}));
  EXPECT_TRUE(may_make_token(root_caller(), bob, {}));
  caller.role_max = Role::user;
  EXPECT_FALSE(may_make_token(caller, ada, {}));
  EXPECT_TRUE(may_make_token(caller, ada, {.role_max = Role::user}));
  caller.queue = "q";
  EXPECT_FALSE(may_make_token(caller, ada, {.role_max = Role::user}));
  EXPECT_TRUE(may_make_token(caller, ada, {.role_max = Role::user, .queue = "q/part"}));
  caller.until = now;
  EXPECT_FALSE(may_make_token(caller, ada, {.role_max = Role::user, .queue = "q"}));
  EXPECT_FALSE(may_make_token(caller, ada, {.role_max = Role::user, .queue = "q", .expires_at = now + 1s}));
  EXPECT_TRUE(may_make_token(caller, ada, {.role_max = Role::user, .queue = "q", .expires_at = now}));
  Caller admin = with({{Role::admin, ""}});
  EXPECT_TRUE(may_make_token(admin, bob, {}));
  admin.until = now;
  for (const Person& whose : {ada, bob, robot}) {
    EXPECT_FALSE(may_make_token(admin, whose, {})) << "an hour of an admin's token is no token for ever";
    EXPECT_FALSE(may_make_token(admin, whose, {.expires_at = now + 1s}));
    EXPECT_TRUE(may_make_token(admin, whose, {.expires_at = now}));
  }
}

}  // namespace
}  // namespace tutti::people
