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

}  // namespace
}  // namespace tutti::controller
