#include "comm/verdict.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <iterator>
#include <map>
#include <tuple>

#include "base/units.hpp"
#include "comm/frame.hpp"

namespace tutti::comm {
namespace {

constexpr std::size_t ranks_max = 1'000'000;
// A wait that has only just begun, compared with the one that is asked about, holds nobody up: ranks that
// work come and go.
constexpr std::int64_t short_wait = 10;
// Ranks that wait for one another in a row, such as the stages of a pipeline.
constexpr int chain_max = 1000;

void put(Writer& writer, const OperationRecord& record) {
  writer.number(record.group).number(record.sequence).number(static_cast<std::uint8_t>(record.operation));
  writer.number(static_cast<std::uint8_t>(record.type)).number(static_cast<std::uint8_t>(record.reduction));
  writer.number(record.root).number(record.bytes);
  writer.number(record.enqueued_ns).number(record.started_ns).number(record.ended_ns);
}

bool get(Reader& reader, OperationRecord& record) {
  record.group = reader.number<std::uint64_t>();
  record.sequence = reader.number<std::uint64_t>();
  const auto operation = reader.number<std::uint8_t>();
  const auto type = reader.number<std::uint8_t>();
  const auto reduction = reader.number<std::uint8_t>();
  record.root = reader.number<std::int32_t>();
  record.bytes = reader.number<std::uint64_t>();
  record.enqueued_ns = reader.number<std::int64_t>();
  record.started_ns = reader.number<std::int64_t>();
  record.ended_ns = reader.number<std::int64_t>();
  if (operation > static_cast<std::uint8_t>(last_operation) ||
      type > static_cast<std::uint8_t>(last_data_type) ||
      reduction > static_cast<std::uint8_t>(last_reduction)) {
    return false;
  }
  record.operation = static_cast<Operation>(operation);
  record.type = static_cast<DataType>(type);
  record.reduction = static_cast<Reduction>(reduction);
  return reader.ok();
}

// What must be the same on all members.
auto kind_of(const OperationRecord& record) {
  // A send meets a recv: the two are one operation.
  const auto operation = record.operation == Operation::recv ? Operation::send : record.operation;
  return std::tuple(operation, record.bytes, record.type, record.reduction,
                    operation == Operation::send ? 0 : record.root);
}

std::string seconds(std::int64_t nanoseconds) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f s", static_cast<double>(nanoseconds) * 1e-9);
  return text.data();
}

std::string number_of(const OperationRecord& record) { return " #" + std::to_string(record.sequence); }

std::string size_text(const OperationRecord& record) {
  return record.operation == Operation::barrier
             ? ""
             : format_bytes(Bytes(static_cast<std::int64_t>(record.bytes)));
}

// "(4 MiB, group dp)"
std::string place_text(const Question& question) {
  const std::string size = size_text(question.operation);
  return " (" + size + (size.empty() ? "" : ", ") + "group " + question.group_name + ")";
}

std::string details(const OperationRecord& record) {
  std::string text = std::string(name_of(record.operation));
  if (record.operation == Operation::barrier) return text;
  text += " of " + size_text(record) + " " + std::string(name_of(record.type));
  const bool reduces = record.operation == Operation::all_reduce || record.operation == Operation::reduce ||
                       record.operation == Operation::reduce_scatter;
  if (reduces) text += " " + std::string(name_of(record.reduction));
  if (record.root >= 0) text += ", root " + std::to_string(record.root);
  return text;
}

std::string process_text(const ProcessState* process, bool answered) {
  if (process == nullptr) return answered ? "it answers" : "it does not answer";
  const std::string cpu =
      process->cpu_percent >= 0 ? ", " + std::to_string(process->cpu_percent) + "% CPU" : "";
  switch (process->state) {
    case 0:
    case 'Z':
    case 'X':
      return "its process is gone";
    case 'T':
    case 't':
      return "it is stopped (SIGSTOP)";
    case 'D':
      return "it waits for a disk or a device" + cpu;
    default:
      return "it is running" + cpu;
  }
}

class Judge {
 public:
  Judge(const Question& question, std::span<const Report> reports, std::span<const Attendance> ranks)
      : question_(question), ranks_(ranks) {
    for (const Report& report : reports) {
      reports_[report.rank] = &report;
      for (const ProcessState& process : report.processes) {
        // A rank's word about itself is worth more than its neighbours'.
        if (process.rank == report.rank || !processes_.contains(process.rank))
          processes_[process.rank] = process;
      }
    }
  }

  Verdict verdict() {
    if (auto text = mismatch(); !text.empty()) return {text, true};
    if (auto text = culprit(question_, 0); !text.empty()) return {text};
    if (auto text = absent(question_, missing(question_)); !text.empty()) return {text};
    return {stuck()};
  }

 private:
  std::string stuck() const {
    return operation_text(question_) + " did not finish within " + seconds(question_.waited_ns) +
           ": every rank has entered it and answers, so the data is not moving between them";
  }

  const Report* report_of(int rank) const {
    const auto found = reports_.find(rank);
    return found == reports_.end() ? nullptr : found->second;
  }
  const ProcessState* process_of(int rank) const {
    const auto found = processes_.find(rank);
    return found == processes_.end() ? nullptr : &found->second;
  }
  std::string text_of(int rank) const {
    const auto index = static_cast<std::size_t>(rank);
    return rank_text(rank, index < ranks_.size() ? ranks_[index].node : "");
  }
  static std::string operation_text(const Question& asked) {
    return std::string(name_of(asked.operation.operation)) + number_of(asked.operation) + place_text(asked);
  }
  static std::string waited_text(const Question& asked) {
    return "the others have waited " + seconds(asked.waited_ns);
  }

  std::string mismatch() const {
    std::map<decltype(kind_of(OperationRecord{})), std::vector<int>> kinds;
    for (const int member : question_.members) {
      const Report* const report = report_of(member);
      if (report != nullptr && report->same) kinds[kind_of(*report->same)].push_back(member);
    }
    if (kinds.size() < 2) return "";
    // The fewest are wrong; among equals, those that differ from the one that asks.
    const auto wrong = std::min_element(kinds.begin(), kinds.end(), [&](const auto& a, const auto& b) {
      const bool asks_a = a.first == kind_of(question_.operation);
      const bool asks_b = b.first == kind_of(question_.operation);
      return std::pair(a.second.size(), asks_a) < std::pair(b.second.size(), asks_b);
    });
    const auto right = std::max_element(kinds.begin(), kinds.end(), [&](const auto& a, const auto& b) {
      return a.second.size() < b.second.size() || &a == &*wrong;
    });
    const OperationRecord& theirs = *report_of(wrong->second.front())->same;
    const OperationRecord& ours = *report_of(right->second.front())->same;
    const bool same_name = theirs.operation == ours.operation;
    const std::string others =
        right->second.size() == 1 ? text_of(right->second.front()) : std::string("the others");
    return text_of(wrong->second.front()) + " called " +
           (same_name ? details(theirs) : std::string(name_of(theirs.operation))) + number_of(theirs) +
           " where " + others + " called " +
           (same_name ? details(ours) : std::string(name_of(ours.operation))) + " (group " +
           question_.group_name + ")";
  }

  // Who keeps the operation from ending, as a sentence. A rank that is late because it waits for another one
  // is not to blame: who is at the end of that chain? "" if there is none, because the members have entered
  // the operation and answer, or because ranks wait for one another. Each operation is looked into once.
  std::string culprit(const Question& asked, int depth) {
    const auto [at, fresh] = culprits_.try_emplace({asked.operation.group, asked.operation.sequence});
    if (!fresh || depth > chain_max) return at->second;
    const std::vector<int> late = missing(asked);
    std::vector<int> idle;
    std::copy_if(late.begin(), late.end(), std::back_inserter(idle),
                 [&](int rank) { return !waits(*report_of(rank)); });
    std::string text = gone(asked);
    if (text.empty()) text = absent(asked, idle);
    if (text.empty()) text = behind(late, depth);
    if (text.empty()) text = silent(asked);
    return at->second = text;
  }

  // Members that answer, and have not entered it. Without an answer nobody knows: silent() names those.
  std::vector<int> missing(const Question& asked) const {
    std::vector<int> late;
    for (const int member : asked.members) {
      const Report* const report = report_of(member);
      if (report != nullptr && !report->entered(asked.operation)) late.push_back(member);
    }
    return late;
  }

  bool is_long(const Question& wait) const { return wait.waited_ns >= question_.waited_ns / short_wait; }

  bool waits(const Report& report) const {
    const bool in_asked = report.same && report.same->ended_ns == 0;
    return in_asked || std::any_of(report.waits.begin(), report.waits.end(),
                                   [&](const Question& wait) { return is_long(wait); });
  }

  std::string behind(const std::vector<int>& late, int depth) {
    for (const int rank : late) {
      for (const Question& wait : report_of(rank)->waits) {
        if (!is_long(wait)) continue;
        if (std::string text = culprit(wait, depth + 1); !text.empty()) return text;
      }
    }
    return "";
  }

  std::string gone(const Question& asked) const {
    std::vector<int> left;
    for (const int member : asked.members) {
      const auto index = static_cast<std::size_t>(member);
      if (index < ranks_.size() && ranks_[index].left) left.push_back(member);
    }
    return left.empty()
               ? ""
               : list(left) + " left without entering " + operation_text(asked) + "; " + waited_text(asked);
  }

  std::string absent(const Question& asked, const std::vector<int>& late) const {
    if (late.empty()) return "";
    return list(late) + " never entered " + operation_text(asked) + "; " + waited_text(asked) + "; " +
           process_text(process_of(late.front()), true);
  }

  std::string silent(const Question& asked) const {
    std::vector<int> quiet;
    for (const int member : asked.members) {
      if (report_of(member) == nullptr) quiet.push_back(member);
    }
    if (quiet.empty()) return "";
    const ProcessState* const process = process_of(quiet.front());
    return list(quiet) + " does not answer in " + operation_text(asked) + "; " + waited_text(asked) + "; " +
           (process == nullptr ? "its host cannot be reached or it is frozen" : process_text(process, false));
  }

  // "rank 3 on node n2", "rank 3 on node n2 (and 4 more: 5, 6, 7, 9)"
  std::string list(const std::vector<int>& ranks) const {
    constexpr std::size_t shown_max = 8;
    std::string text = text_of(ranks.front());
    if (ranks.size() == 1) return text;
    text += " (and " + std::to_string(ranks.size() - 1) + " more: ";
    for (std::size_t i = 1; i < std::min(ranks.size(), shown_max); ++i) {
      text += (i > 1 ? ", " : "") + std::to_string(ranks[i]);
    }
    return text + (ranks.size() > shown_max ? ", …)" : ")");
  }

  const Question& question_;
  std::span<const Attendance> ranks_;
  std::map<int, const Report*> reports_;
  std::map<int, ProcessState> processes_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::string> culprits_;  // by group and sequence
};

}  // namespace

std::string rank_text(int rank, std::string_view node) {
  return "rank " + std::to_string(rank) + (node.empty() ? "" : " on node " + std::string(node));
}

std::string Question::encode() const {
  Writer writer;
  writer.number(number).number(group).text(group_name).number(asker).number(waited_ns);
  writer.number(static_cast<std::uint8_t>(final ? 1 : 0));
  writer.number(static_cast<std::uint32_t>(members.size()));
  for (const int member : members) writer.number(member);
  put(writer, operation);
  return writer.take();
}

std::optional<Question> Question::decode(std::string_view bytes) {
  Reader reader(bytes);
  Question question;
  question.number = reader.number<std::uint32_t>();
  question.group = reader.number<std::uint64_t>();
  question.group_name = reader.text();
  question.asker = reader.number<int>();
  question.waited_ns = reader.number<std::int64_t>();
  question.final = reader.number<std::uint8_t>() != 0;
  const auto count = reader.number<std::uint32_t>();
  if (count > ranks_max) return std::nullopt;
  for (std::uint32_t i = 0; i < count && reader.ok(); ++i) question.members.push_back(reader.number<int>());
  if (!get(reader, question.operation) || !reader.complete()) return std::nullopt;
  return question;
}

bool Report::entered(const OperationRecord& operation) const {
  const auto found = sequences.find(operation.group);
  return found != sequences.end() && found->second >= operation.sequence;
}

std::string Report::encode() const {
  Writer writer;
  writer.number(rank).number(number).number(static_cast<std::uint32_t>(sequences.size()));
  for (const auto& [group, sequence] : sequences) writer.number(group).number(sequence);
  writer.number(static_cast<std::uint8_t>(same ? 1 : 0));
  put(writer, same.value_or(OperationRecord{}));
  writer.number(static_cast<std::uint32_t>(waits.size()));
  for (const Question& wait : waits) writer.text(wait.encode());
  writer.number(static_cast<std::uint32_t>(processes.size()));
  for (const ProcessState& process : processes) {
    writer.number(process.rank).number(process.state).number(process.cpu_percent);
  }
  return writer.take();
}

std::optional<Report> Report::decode(std::string_view bytes) {
  Reader reader(bytes);
  Report report;
  report.rank = reader.number<int>();
  report.number = reader.number<std::uint32_t>();
  const auto groups = reader.number<std::uint32_t>();
  if (groups > Recorder::records_max) return std::nullopt;
  for (std::uint32_t i = 0; i < groups && reader.ok(); ++i) {
    const auto group = reader.number<std::uint64_t>();
    report.sequences[group] = reader.number<std::uint64_t>();
  }
  const bool has = reader.number<std::uint8_t>() != 0;
  OperationRecord record;
  if (!get(reader, record)) return std::nullopt;
  if (has) report.same = record;
  const auto waits = reader.number<std::uint32_t>();
  if (waits > waits_max) return std::nullopt;
  for (std::uint32_t i = 0; i < waits; ++i) {
    auto wait = Question::decode(reader.text());
    if (!wait) return std::nullopt;
    report.waits.push_back(std::move(*wait));
  }
  const auto count = reader.number<std::uint32_t>();
  if (count > ranks_max) return std::nullopt;
  for (std::uint32_t i = 0; i < count && reader.ok(); ++i) {
    ProcessState process;
    process.rank = reader.number<int>();
    process.state = reader.number<char>();
    process.cpu_percent = reader.number<int>();
    report.processes.push_back(process);
  }
  if (!reader.complete()) return std::nullopt;
  return report;
}

Verdict judge(const Question& question, std::span<const Report> reports, std::span<const Attendance> ranks) {
  return Judge(question, reports, ranks).verdict();
}

}  // namespace tutti::comm
