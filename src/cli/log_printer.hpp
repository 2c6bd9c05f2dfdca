// Prints the logs of ranks as they arrive, line by line, each with its rank. After a reconnect the log comes
// again from its beginning: what was already printed is passed over, by its place in the log. Main thread.
#pragma once

#include <cstdint>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace tutti::cli {

// A piece of a rank's log, as the controller sends it.
struct LogPiece {
  std::int32_t rank = 0;
  std::int32_t attempt = 0;
  std::uint64_t offset = 0;  // of its first byte in the log
  std::uint64_t bytes = 0;   // in the log: what is no UTF-8 has become something else in the text
  std::string_view text;
};

struct LogPrinterOptions {
  bool prefix = true;     // "[rank] " before each line
  bool terminal = false;  // what is printed goes to one
  bool raw = false;       // a terminal, too, gets every byte as it was printed
  std::string label;      // before the rank: "3." for "[3.0] "
  std::string live_line;  // on a terminal, lines that begin so take the place of one another; empty: none do
};

class LogPrinter {
 public:
  explicit LogPrinter(LogPrinterOptions options, std::FILE* out = stdout)
      : options_(std::move(options)), out_(out) {}

  // How many bytes of the log are missing in front of this piece. `whole`: it was asked for from its
  // beginning.
  std::uint64_t take(const LogPiece& piece, bool whole);
  // What has begun a line and not ended it is shown, too.
  void finish();
  // Why not all of it could be written: the number of the first failure, 0 if there was none.
  int failure() const { return failure_; }

 private:
  using Key = std::pair<std::int32_t, std::int32_t>;  // attempt, rank
  struct Rank {
    std::string partial;
    std::uint64_t next = 0;  // the place in the log of what is to be printed next
  };

  void print(const Key& key, Rank& state, std::string_view text);
  void put(const Key& key, const std::string& text, char end);
  void put_live(const Key& key, const std::string& text);
  void put_text(const Key& key, const std::string& text, bool prefix);
  void flush();

  LogPrinterOptions options_;
  std::FILE* out_;
  bool live_shown_ = false;  // the cursor stands behind a line that the next one may replace
  std::optional<Key> open_;  // whose line has begun and not ended
  bool returned_ = false;    // the cursor stands at its beginning
  int failure_ = 0;
  std::map<Key, Rank> ranks_;
};

}  // namespace tutti::cli
