#include "lab/measure/pairs.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>

#include "base/clock/clock.hpp"

namespace tutti::measure {
namespace {

using Clock = std::chrono::steady_clock;
using comm::Communicator;
using comm::DataType;

constexpr int trips_min = 10;
constexpr int trips_max = 1000;
constexpr std::size_t block_bytes = std::size_t{1} << 20;
constexpr std::uint32_t burst_blocks_max = 256;
// A burst that is shorter than this part of the time says more about its start and its end than about the
// link.
constexpr int bursts_wanted = 8;

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// One rank's side of its pairs. Of each exchange one side leads: it holds the clock and tells the other when
// it is over.
class Side {
 public:
  Side(Communicator& world, const PairOptions& options)
      : world_(world), options_(options), block_(block_bytes) {}

  // Half of the best round trip, in seconds.
  Result<double> lead_trips(int peer) {
    double best = 1e9;
    const auto begin = Clock::now();
    for (int trip = 0; trip < trips_max; ++trip) {
      if (trip >= trips_min && seconds_since(begin) > in_seconds(options_.latency_time)) break;
      const auto sent = Clock::now();
      if (auto said = say(peer, go_on); !said) return std::move(said).error();
      if (auto back = hear(peer); !back) return std::move(back).error();
      best = std::min(best, seconds_since(sent));
    }
    if (auto said = say(peer, stop); !said) return std::move(said).error();
    return best / 2;
  }

  Result<> answer_trips(int peer) {
    for (;;) {
      auto word = hear(peer);
      if (!word) return std::move(word).error();
      if (*word == stop) return {};
      if (auto said = say(peer, go_on); !said) return said;
    }
  }

  // Bytes a second from here to there. Bursts of blocks, each until the other side has all of it, grow until
  // they are long enough; the median of the long ones counts, which a hiccup does not move.
  Result<double> lead_bursts(int peer) {
    const double time = in_seconds(options_.bandwidth_time);
    std::vector<double> speeds;
    std::uint32_t blocks = 1;
    const auto begin = Clock::now();
    while (speeds.empty() || seconds_since(begin) < time) {
      const auto sent = Clock::now();
      if (auto done = send_burst(peer, blocks); !done) return std::move(done).error();
      const double took = seconds_since(sent);
      if (took * bursts_wanted < time && blocks < burst_blocks_max) {
        blocks *= 2;
      } else {
        speeds.push_back(static_cast<double>(blocks) * block_bytes / took);
      }
    }
    if (auto said = say(peer, stop); !said) return std::move(said).error();
    return median(std::move(speeds));
  }

  Result<> answer_bursts(int peer) {
    for (;;) {
      auto blocks = hear(peer);
      if (!blocks) return std::move(blocks).error();
      if (*blocks == stop) return {};
      for (std::uint32_t at = 0; at < *blocks; ++at) {
        if (auto got = world_.recv(block_.data(), block_bytes, DataType::u8, peer).wait(); !got) return got;
      }
      if (auto said = say(peer, go_on); !said) return said;
    }
  }

 private:
  static constexpr std::uint32_t stop = 0;
  static constexpr std::uint32_t go_on = 1;

  Result<> send_burst(int peer, std::uint32_t blocks) {
    if (auto said = say(peer, blocks); !said) return said;
    for (std::uint32_t at = 0; at < blocks; ++at) {
      if (auto sent = world_.send(block_.data(), block_bytes, DataType::u8, peer).wait(); !sent) return sent;
    }
    auto all = hear(peer);
    return all ? Result<>() : Result<>(std::move(all).error());
  }

  Result<> say(int peer, std::uint32_t word) {
    return world_.send(&word, sizeof word, DataType::u8, peer).wait();
  }
  Result<std::uint32_t> hear(int peer) {
    std::uint32_t word = 0;
    auto heard = world_.recv(&word, sizeof word, DataType::u8, peer).wait();
    if (!heard) return std::move(heard).error();
    return word;
  }

  Communicator& world_;
  const PairOptions& options_;
  std::vector<std::byte> block_;
};

// What a rank knows of its way to another.
struct Way {
  double latency_us = 0;  // only the lower rank of a pair has it
  double bandwidth_gb_s = 0;
};

Result<> play(Side& side, int me, const std::pair<int, int>& pair, std::vector<Way>& ways) {
  const bool lower = me == pair.first;
  const int peer = lower ? pair.second : pair.first;
  Way& way = ways[static_cast<std::size_t>(peer)];
  const auto lead = [&]() -> Result<> {
    auto speed = side.lead_bursts(peer);
    if (!speed) return std::move(speed).error();
    way.bandwidth_gb_s = *speed * 1e-9;
    return {};
  };
  if (lower) {
    auto trip = side.lead_trips(peer);
    if (!trip) return std::move(trip).error();
    way.latency_us = *trip * 1e6;
    if (auto done = lead(); !done) return done;
    return side.answer_bursts(peer);
  }
  if (auto done = side.answer_trips(peer); !done) return done;
  if (auto done = side.answer_bursts(peer); !done) return done;
  return lead();
}

std::vector<PairResult> results_of(const std::vector<Way>& all, int ranks) {
  const auto way = [&](int from, int to) -> const Way& {
    return all[static_cast<std::size_t>(from) * static_cast<std::size_t>(ranks) +
               static_cast<std::size_t>(to)];
  };
  std::vector<PairResult> results;
  for (int from = 0; from < ranks; ++from) {
    for (int to = 0; to < ranks; ++to) {
      if (from == to) continue;
      results.push_back(
          {from, to, way(std::min(from, to), std::max(from, to)).latency_us, way(from, to).bandwidth_gb_s});
    }
  }
  return results;
}

}  // namespace

// The circle method: the last seat stays, all others move on by one each round, and those who sit opposite
// each other play. An odd number of ranks gets an empty seat: who sits opposite rests.
std::vector<Round> tournament(int ranks) {
  std::vector<Round> rounds;
  if (ranks < 2) return rounds;
  const int seats = ranks + ranks % 2;
  const int circle = seats - 1;
  for (int turn = 0; turn < circle; ++turn) {
    Round round;
    for (int at = 0; at < seats / 2; ++at) {
      const int one = (turn + at) % circle;
      const int other = at == 0 ? circle : (turn + circle - at) % circle;
      if (std::max(one, other) < ranks) round.emplace_back(std::min(one, other), std::max(one, other));
    }
    rounds.push_back(std::move(round));
  }
  return rounds;
}

Result<std::vector<PairResult>> measure_pairs(Communicator& world, const PairOptions& options,
                                              const std::function<void(int, int)>& each) {
  const int ranks = world.size();
  const int me = world.rank();
  const auto rounds = tournament(ranks);
  Side side(world, options);
  std::vector<Way> ways(static_cast<std::size_t>(ranks));
  for (std::size_t at = 0; at < rounds.size(); ++at) {
    if (auto met = world.barrier().wait(); !met) return std::move(met).error();
    if (me == 0 && each) each(static_cast<int>(at) + 1, static_cast<int>(rounds.size()));
    for (const auto& pair : rounds[at]) {
      if (pair.first != me && pair.second != me) continue;
      if (auto played = play(side, me, pair, ways); !played) return std::move(played).error();
    }
  }
  std::vector<Way> all(me == 0 ? ways.size() * ways.size() : 0);
  const std::size_t count = ways.size() * sizeof(Way) / sizeof(double);
  static_assert(sizeof(Way) == 2 * sizeof(double));
  if (auto done = world.gather(ways.data(), all.data(), count, DataType::f64, 0).wait(); !done)
    return std::move(done).error();
  return me == 0 ? results_of(all, ranks) : std::vector<PairResult>();
}

std::string pairs_json(const Communicator& world, const std::vector<PairResult>& results) {
  std::string text = "[\n";
  for (const PairResult& result : results) {
    std::array<char, 96> numbers{};
    std::snprintf(numbers.data(), numbers.size(), "\"latency_us\": %.6g, \"bandwidth_gb_s\": %.6g}",
                  result.latency_us, result.bandwidth_gb_s);
    text += (&result == &results.front() ? " " : ",") + std::string("{\"from\": \"") +
            world.node(result.from) + "\", \"to\": \"" + world.node(result.to) + "\", " + numbers.data() +
            "\n";
  }
  return text + "]";
}

}  // namespace tutti::measure
