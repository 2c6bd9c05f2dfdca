#include "serve/server/entering.hpp"

#include <vector>

#include <gtest/gtest.h>

namespace tutti::serve {
namespace {

Prepared prompts(std::size_t count) {
  Prepared prepared;
  for (std::size_t nth = 0; nth < count; ++nth)
    prepared.prompts.push_back({.tokens = {static_cast<Token>(nth)}, .begin = ""});
  return prepared;
}

// An engine with so many places.
struct Places {
  Entering::Submit submit() {
    return [this](const Request& request, std::size_t nth) -> Result<RequestId> {
      EXPECT_EQ(request.prompt, std::vector<Token>{static_cast<Token>(nth)});
      if (free == 0) return failed("too many");
      --free;
      taken.push_back(nth);
      return RequestId(100 + nth);
    };
  }
  std::size_t free = 0;
  std::vector<std::size_t> taken;
};

TEST(Entering, OneFollowsWhenAnotherIsDone) {
  Places places{.free = 10'000};
  Entering entering(prompts(inputs_inside_max + 2));
  EXPECT_EQ(entering.step(places.submit(), {}), Entering::Step::goes_on);
  EXPECT_EQ(entering.inside().size(), inputs_inside_max);
  entering.done(7);
  EXPECT_EQ(entering.step(places.submit(), {}), Entering::Step::goes_on);
  EXPECT_EQ(places.taken.back(), inputs_inside_max);
  EXPECT_FALSE(entering.inside().contains(7));
  entering.done(0);
  entering.done(1);
  EXPECT_EQ(entering.step(places.submit(), {}), Entering::Step::goes_on);
  EXPECT_EQ(places.taken.size(), inputs_inside_max + 2);
  EXPECT_EQ(entering.step(places.submit(), {}), Entering::Step::goes_on) << "there are no more";
  EXPECT_EQ(places.taken.size(), inputs_inside_max + 2);
  EXPECT_EQ(entering.inside().at(2), RequestId(102));
}

TEST(Entering, WhereOthersHaveTakenItsPlaceItWaitsForOneAndNotForEver) {
  Places places{.free = 1};
  Entering entering(prompts(3));
  EXPECT_EQ(entering.step(places.submit(), {}), Entering::Step::goes_on) << "the end of the one leads on";
  entering.done(0);
  SteadyClock::time_point now{};
  EXPECT_EQ(entering.step(places.submit(), now), Entering::Step::waits);
  now += entering_time_max - 1ns;
  EXPECT_EQ(entering.step(places.submit(), now), Entering::Step::waits);
  places.free = 1;
  now += 1h;
  EXPECT_EQ(entering.step(places.submit(), now), Entering::Step::goes_on);
  EXPECT_EQ(places.taken, (std::vector<std::size_t>{0, 1}));
  entering.done(1);
  EXPECT_EQ(entering.step(places.submit(), now), Entering::Step::waits) << "it has its time anew";
  EXPECT_EQ(entering.step(places.submit(), now + entering_time_max), Entering::Step::is_over);
  EXPECT_EQ(entering.why().message(), "too many");
  EXPECT_TRUE(entering.inside().empty());
}

TEST(Entering, WhatIsWrongWaitsForNothing) {
  Entering entering(prompts(1));
  const auto step = entering.step([](const Request&, std::size_t) { return invalid("wrong"); }, {});
  EXPECT_EQ(step, Entering::Step::is_over);
}

TEST(Entering, AllGoInOrItIsSaidWhyNot) {
  Places places{.free = 2};
  Entering entering(prompts(3));
  EXPECT_FALSE(entering.enter_all(places.submit()));
  EXPECT_EQ(entering.inside().size(), 2U) << "who has to be taken out again";
  Places enough{.free = 200};
  Entering many(prompts(inputs_inside_max + 1));
  EXPECT_TRUE(many.enter_all(enough.submit()));
  EXPECT_EQ(many.inside().size(), inputs_inside_max + 1);
}

}  // namespace
}  // namespace tutti::serve
