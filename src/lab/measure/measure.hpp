// How fast collectives are here, beside what the machine itself could do: the work of `tutti bench comm`, on
// the ranks of a communicator. Every rank calls it with the same plan. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/time.hpp"
#include "comm/communicator.hpp"

namespace tutti::measure {

enum class Buffers { ordinary, shared };

struct Plan {
  comm::Operation operation = comm::Operation::all_reduce;
  comm::DataType type = comm::DataType::f32;
  std::vector<std::size_t> bytes;  // of the larger buffer of a rank
  Buffers buffers = Buffers::ordinary;
  Duration time = 500ms;  // spent on each size
};

// "64K", or "1K-256M": each size four times the one before, the last one as it is given.
Result<std::vector<std::size_t>> parse_sizes(std::string_view text);
Result<Buffers> parse_buffers(std::string_view text);
std::string_view name_of(Buffers buffers);

struct Measurement {
  comm::Operation operation = comm::Operation::all_reduce;
  comm::DataType type = comm::DataType::f32;
  std::size_t bytes = 0;
  int ranks = 0;
  std::string transport;
  Buffers buffers = Buffers::ordinary;
  double time_us = 0;        // of one operation, on the slowest rank
  double algbw_gb_s = 0;     // bytes / time
  double busbw_gb_s = 0;     // what a link carries for it, which compares across numbers of ranks
  double limit_percent = 0;  // of what memory or the network allows

  std::string json() const;
};

// The machine's own speed, measured by all ranks at once.
struct Limit {
  double memory_gb_s = 0;  // of one host, read and written; 0 if there are several hosts
  double link_gb_s = 0;    // from one rank to another, one way; 0 on one host
};

// `each` is called on rank 0 as soon as a size is done.
Result<Limit> measure_limit(comm::Communicator& world, const Plan& plan);
Result<std::vector<Measurement>> measure(comm::Communicator& world, const Plan& plan, const Limit& limit,
                                         const std::function<void(const Measurement&)>& each);

// Bytes that the operation must read and write in memory for each byte of its size; 0 if it has no data.
double memory_factor(comm::Operation operation, int ranks);
// Bytes that each rank must send over the network for each byte of its size.
double bus_factor(comm::Operation operation, int ranks);

}  // namespace tutti::measure
