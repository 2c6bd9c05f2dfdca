#include "net/http/turns.hpp"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>

namespace tutti::net {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using namespace std::chrono_literals;

constexpr std::size_t many = 100;
constexpr std::size_t a_few = 4;

struct Waiting : testing::Test {
  void wait(const std::string& address, std::chrono::seconds time = 3600s, bool has_left = false) {
    const auto place = std::make_shared<Turns::Place>(
        Turns::Place{asio::steady_timer(context, time), [has_left] { return has_left; }});
    place->timer.async_wait([this, address, place, has_left](error_code over) {
      if (over != asio::error::operation_aborted) late.push_back(address);
      if (over == asio::error::operation_aborted && !has_left) called.push_back(address);
    });
    turns->enter(address, place);
  }

  asio::io_context context{1};
  std::shared_ptr<Turns> turns = std::make_shared<Turns>(context, a_few);
  std::vector<std::string> called;
  std::vector<std::string> late;
};

TEST_F(Waiting, AddressesTakeTurns) {
  for (std::size_t at = 0; at < many; ++at) wait("loud");
  wait("one");
  wait("two");
  wait("two");
  context.run();
  ASSERT_EQ(called.size(), many + 3);
  const std::vector<std::string> first(called.begin(), called.begin() + 6);
  EXPECT_EQ(first, (std::vector<std::string>{"loud", "one", "two", "loud", "two", "loud"}));
}

TEST_F(Waiting, EverybodyElseHasATurnBetweenTwoRounds) {
  for (std::size_t at = 0; at < many; ++at) {
    wait("loud");
    wait(std::to_string(at));
  }
  std::size_t seen = 0;
  std::size_t most = 0;
  std::size_t most_loud = 0;
  const std::function<void()> neighbour = [&] {
    const auto fresh = called.begin() + static_cast<std::ptrdiff_t>(std::exchange(seen, called.size()));
    most = std::max(most, static_cast<std::size_t>(called.end() - fresh));
    most_loud = std::max(most_loud, static_cast<std::size_t>(std::count(fresh, called.end(), "loud")));
    if (called.size() < 2 * many) asio::post(context, neighbour);
  };
  asio::post(context, neighbour);
  context.run();
  EXPECT_EQ(called.size(), 2 * many);
  EXPECT_LE(most, a_few);
  EXPECT_EQ(most_loud, 1U);
}

TEST_F(Waiting, WhoHasLeftTakesNoTurn) {
  for (std::size_t at = 0; at < many; ++at) wait("loud", 3600s, true);
  wait("loud");
  wait("loud", 0s);
  context.run();
  EXPECT_EQ(called, std::vector<std::string>{"loud"});
  EXPECT_EQ(late, std::vector<std::string>{"loud"}) << "its time was over before its turn came";
}

}  // namespace
}  // namespace tutti::net
