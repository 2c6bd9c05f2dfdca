#include "control/controller/desk.hpp"

#include <future>

#include <gtest/gtest.h>

namespace tutti::controller {
namespace {

TEST(Desk, WorksBesideWhoeverAsks) {
  Desk desk(blob_desk);
  std::promise<std::thread::id> worker;
  ASSERT_TRUE(desk.run("here", [&] { worker.set_value(std::this_thread::get_id()); }));
  EXPECT_NE(worker.get_future().get(), std::this_thread::get_id());
}

TEST(Desk, RefusesMoreThanItCanHoldAndEndsWithWhatWaits) {
  Desk desk(blob_desk);
  std::promise<void> gate;
  const std::shared_future<void> open(gate.get_future());
  std::size_t taken = 0;
  // Many ask, each for one thing.
  const auto next = [&] { return desk.run("address-" + std::to_string(taken), [open] { open.wait(); }); };
  while (taken < 2 * blob_desk.waiting_max && next()) ++taken;
  EXPECT_GE(taken, blob_desk.waiting_max);
  EXPECT_LE(taken, blob_desk.waiting_max + blob_desk.threads);
  gate.set_value();
  desk.stop();
  EXPECT_FALSE(desk.run("here", [] {}));
}

TEST(Desk, OneAddressDoesNotTakeAllPlaces) {
  Desk desk(blob_desk);
  std::promise<void> gate;
  const std::shared_future<void> open(gate.get_future());
  std::size_t taken = 0;
  while (taken < 2 * blob_desk.waiting_max && desk.run("10.0.0.1", [open] { open.wait(); })) ++taken;
  EXPECT_LT(taken, blob_desk.waiting_max);
  EXPECT_TRUE(desk.run("10.0.0.2", [open] { open.wait(); }));
  gate.set_value();
}

TEST(Desk, AddressesTakeTurns) {
  Desk desk({.threads = 1, .waiting_max = 64});
  std::promise<void> gate;
  std::promise<void> all_done;
  std::string order;
  const auto ask = [&](const std::string& address, char name) {
    ASSERT_TRUE(desk.run(address, [&order, name] { order += name; }));
  };
  std::promise<void> busy;
  ASSERT_TRUE(desk.run("10.0.0.1", [&] {
    busy.set_value();
    gate.get_future().wait();
  }));
  busy.get_future().wait();
  for (const char name : {'a', 'b', 'c'}) ask("10.0.0.1", name);
  ask("10.0.0.2", 'x');
  ask("10.0.0.2", 'y');
  ask("10.0.0.3", 'z');
  ASSERT_TRUE(desk.run("10.0.0.1", [&all_done] { all_done.set_value(); }));
  gate.set_value();
  all_done.get_future().wait();
  EXPECT_EQ(order, "axzbyc") << "nobody waits for all that another one has asked for";
}

}  // namespace
}  // namespace tutti::controller
