// The files of the audit log: every line that has left the store, the oldest first, in a folder of its own. A
// line is on the disk here before it leaves the store, so that a crash loses none, and what is here already
// is not written again. Nothing is ever changed; whole files go when they are too old or too much. One
// writer; whoever reads may be anybody.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "base/units.hpp"
#include "control/audit/line.hpp"

namespace tutti::audit {

// With so much in it a file is full, and the next one begins.
constexpr Bytes file_bytes_max = mib(8);
// Of one file of whatever origin: a larger one is not read.
constexpr Bytes read_bytes_max = mib(64);

class Shelf {
 public:
  // A folder that is not there is made when there is something to write. What a power cut left of a line that
  // was being written goes into a file beside, `*.torn`.
  static Result<Shelf> open(std::string folder);

  const Head& head() const { return head_; }
  // Lines with their ends, which are on the disk when this returns; those that are here are passed over.
  Result<> append(std::string_view lines);
  // Something that whoever looks after it should know, once; "": nothing.
  std::string take_amiss() { return std::exchange(amiss_, {}); }
  // The oldest files until no more than so much is left, and those of which every line is from before that
  // time; the newest stays. Zero: no bound.
  Result<> trim(Bytes most, Instant oldest);

 private:
  Shelf(std::string folder, Head head, std::string newest, Bytes newest_bytes)
      : folder_(std::move(folder)),
        head_(std::move(head)),
        newest_(std::move(newest)),
        newest_bytes_(newest_bytes) {}

  Result<> write(std::string_view lines);
  bool is_as_it_was() const;

  std::string folder_;
  Head head_;
  std::string newest_;  // the file that is written to; "": the next line begins one
  Bytes newest_bytes_;
  bool is_cut_short_ = false;  // there may be half a line behind them
  std::string amiss_;
};

struct Query {
  std::uint64_t after = 0;  // lines with higher numbers
  std::string since = {};   // and not earlier, as format_instant() writes it; "": from the beginning
  std::string who = {};     // of him alone; "": of everybody
  std::size_t lines_max = 1'000;
};
struct Page {
  std::vector<std::string> lines;  // without their ends
  std::uint64_t next = 0;          // after which the next page goes on; 0: that was all
};
// So much is looked at for a page, in which there may be nothing that is asked for.
constexpr Bytes page_bytes_max = mib(2);

// What is in the folder, and then in those lines, which follow it or repeat some of it. Of times nothing is
// believed but what stands in the lines themselves.
Result<Page> read_page(const std::string& folder, std::string_view newest, const Query& query);

// Of a folder with such files: bytes of all of them.
Bytes shelf_bytes(const std::string& folder);

}  // namespace tutti::audit
