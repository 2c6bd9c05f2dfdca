#include "learn/train/same_files.hpp"

#include <chrono>
#include <functional>
#include <thread>

#include "learn/checkpoint/owner.hpp"
#include "learn/train/failure.hpp"
#include "learn/train/meeting.hpp"

namespace tutti::train {
namespace {

constexpr std::size_t names_bytes_max = 1024;  // of what people are told
constexpr auto look_every = std::chrono::milliseconds(100);

std::string named(const comm::Communicator& world, int rank) {
  return "rank " + std::to_string(rank) + " on node " + world.node(rank);
}

// The ranks of which it is said; of a gang of thousands the first.
std::string named_where(const comm::Communicator& world, const std::function<bool(int)>& said) {
  std::string names;
  for (int rank = 0; rank < world.size() && names.size() < names_bytes_max; ++rank) {
    if (said(rank)) names += (names.empty() ? "" : ", ") + named(world, rank);
  }
  return names;
}

bool sees(const std::string& run, const std::string& token, Duration patience) {
  const auto until = std::chrono::steady_clock::now() + patience;
  for (;;) {
    const auto seen = checkpoint::owner_of(run);
    if (seen && *seen && (*seen)->owner.token == token) return true;
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(look_every);
  }
}

}  // namespace

void require_same(comm::Communicator& world, const std::string& what, const std::string& path,
                  const std::string& mine) {
  const auto all = require(tell_all(world, mine));
  const std::string others =
      named_where(world, [&](int rank) { return all[static_cast<std::size_t>(rank)] != all.front(); });
  if (others.empty()) return;
  // Another attempt may come to lie on other nodes.
  throw Failure(
      failed(what + " is another one there than that of " + named(world, 0))
          .within(others + ": " + path)
          .remedy("copy it to that node anew, or put it where all nodes share it; `tutti drain NODE` "
                  "trains without that node"));
}

void require_shared(comm::Communicator& world, const std::string& run, const std::string& token,
                    Duration patience) {
  const std::string looked_for = require(tell_all(world, token)).front();
  const bool mine = world.rank() == 0 || sees(run, looked_for, patience);
  const auto all = require(tell_all(world, mine ? "seen" : ""));
  const std::string others =
      named_where(world, [&](int rank) { return all[static_cast<std::size_t>(rank)].empty(); });
  if (others.empty()) return;
  throw Failure(
      failed("it is not the folder that " + named(world, 0) + " trains in: is it mounted there?")
          .within(others + ": " + run)
          .remedy("a run needs a folder that all nodes share: mount it there, or --set run=ANOTHER; "
                  "`tutti drain NODE` trains without that node"));
}

}  // namespace tutti::train
