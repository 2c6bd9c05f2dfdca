// Asks a server that speaks OpenAI's API, as many would at once: a thread for each that waits for an answer.
// Called by one thread, which it keeps until all are answered.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "lab/asking/arrivals.hpp"
#include "lab/asking/report.hpp"
#include "net/http/client.hpp"

namespace tutti::asking {

inline constexpr std::size_t concurrency_max = 4'096;

struct Plan {
  net::Target target;
  std::string key;
  std::string model;
  std::vector<Arrival> arrivals;
  std::size_t concurrency = 16;  // at most at once; who comes later waits, and that counts
  // Arrivals have times of their own; else each is asked when an earlier one is answered.
  bool is_timed = false;
  std::uint64_t seed = 1;  // of the prompts
  // Without anything that comes of an answer, then it is given up; 0: never.
  Duration patience = std::chrono::minutes(10);
};

struct Asked {
  std::vector<Sample> samples;
  Duration took{};
};

// `progress` hears how many are done, and ends it by false: those that were not asked, or whose answers were
// under way, are left out. Fails where there cannot be so many threads; nobody is asked then.
Result<Asked> ask_all(const Plan& plan, const std::function<bool(std::size_t done)>& progress);

struct ServedModel {
  std::string name;
  std::int64_t context = 0;  // tokens of a prompt with its answer; 0: the server does not say
};

// The first model that the server names, or the one of this name. A server may serve one that it does not
// name.
Result<ServedModel> find_model(const net::Target& target, const std::string& key,
                               const std::string& name = "");

}  // namespace tutti::asking
