// Who is to blame: joins what the ranks recorded into one sentence. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/recorder.hpp"

namespace tutti::comm {

// The operation that did not come to its end, as the rank that asks sees it.
struct Question {
  std::uint32_t number = 0;  // the hub's, so that a late answer is not taken for one to the next question
  std::uint64_t group = 0;
  std::string group_name;
  std::vector<int> members;  // ranks of the world
  int asker = 0;
  std::int64_t waited_ns = 0;
  bool final = true;  // the verdict becomes everybody's fault; else it only answers the asker
  OperationRecord operation;

  std::string encode() const;
  static std::optional<Question> decode(std::string_view bytes);
};

// A process as seen from its host.
struct ProcessState {
  int rank = 0;
  char state = 0;  // as in /proc: R, S, D, T …; 0: gone
  int cpu_percent = -1;
};

// What one rank says about itself and the ranks beside it.
struct Report {
  static constexpr std::size_t waits_max = 16;

  int rank = 0;
  std::uint32_t number = 0;                          // of the question
  std::map<std::uint64_t, std::uint64_t> sequences;  // by group: the last operation it entered there
  std::optional<OperationRecord> same;               // its operation of the asked number
  std::vector<Question> waits;  // what it could ask itself: the other operations that it is in
  std::vector<ProcessState> processes;

  bool entered(const OperationRecord& operation) const;

  std::string encode() const;
  static std::optional<Report> decode(std::string_view bytes);
};

// A rank of the world by its number: "rank 3 on node n2".
std::string rank_text(int rank, std::string_view node);

// What the hub knows of a rank.
struct Attendance {
  std::string node;
  bool left = false;  // it has closed its communicator
};

struct Verdict {
  std::string text;
  bool hopeless = false;  // no waiting can help: the ranks are in different operations
};

// `ranks` by their numbers; those without a report did not answer.
Verdict judge(const Question& question, std::span<const Report> reports, std::span<const Attendance> ranks);

}  // namespace tutti::comm
