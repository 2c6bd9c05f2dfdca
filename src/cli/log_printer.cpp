#include "cli/log_printer.hpp"

#include <algorithm>
#include <cerrno>

#include "base/visible.hpp"

namespace tutti::cli {
namespace {

// What a rank prints without an end of line is shown when it has become this much.
constexpr std::size_t partial_bytes_max = 64 << 10;

constexpr char no_end = '\0';

}  // namespace

std::uint64_t LogPrinter::take(const LogPiece& piece, bool whole) {
  const Key key{piece.attempt, piece.rank};
  const bool known = ranks_.contains(key);
  Rank& state = ranks_[key];
  if (!known) state.next = whole ? 0 : piece.offset;
  const std::uint64_t missing = piece.offset > state.next ? piece.offset - state.next : 0;
  const std::uint64_t known_bytes = state.next > piece.offset ? state.next - piece.offset : 0;
  state.next = std::max(state.next, piece.offset + piece.bytes);
  std::string_view text = piece.text;
  text.remove_prefix(static_cast<std::size_t>(std::min<std::uint64_t>(known_bytes, text.size())));
  print(key, state, text);
  flush();
  return missing;
}

// What was written before may have filled the buffer, and failed with it.
void LogPrinter::flush() {
  const int before = errno;
  const bool is_written = std::fflush(out_) == 0;
  if (failure_ == 0 && (!is_written || std::ferror(out_) != 0)) failure_ = is_written ? before : errno;
  if (failure_ == 0 && std::ferror(out_) != 0) failure_ = EIO;
}

// A carriage return ends something that is to be seen now, such as a bar that grows.
void LogPrinter::print(const Key& key, Rank& state, std::string_view text) {
  const bool live = options_.terminal && !options_.live_line.empty();
  while (!text.empty()) {
    const auto end = text.find_first_of(live ? "\n" : "\r\n");
    state.partial += text.substr(0, end);
    if (end == std::string_view::npos) break;
    if (live) {
      put_live(key, state.partial);
    } else {
      put(key, state.partial, text[end]);
    }
    state.partial.clear();
    text.remove_prefix(end + 1);
  }
  if (live || state.partial.size() < partial_bytes_max) return;
  put(key, state.partial, no_end);
  state.partial.clear();
}

void LogPrinter::finish() {
  for (auto& [key, state] : ranks_) {
    if (!state.partial.empty()) put(key, state.partial, '\n');
    state.partial.clear();
  }
  if (std::exchange(live_shown_, false) || open_) std::fputc('\n', out_);
  open_.reset();
  flush();
}

// A part of a line that another rank has begun is left standing.
void LogPrinter::put(const Key& key, const std::string& text, char end) {
  if (std::exchange(live_shown_, false)) std::fputc('\n', out_);
  if (open_ && *open_ != key) {
    std::fputc('\n', out_);
    open_.reset();
  }
  const bool begins = !open_ || (returned_ && options_.terminal && !text.empty());
  put_text(key, text, begins);
  if (end != no_end) std::fputc(end, out_);
  open_ = end == '\n' ? std::nullopt : std::optional(key);
  returned_ = end == '\r';
}

void LogPrinter::put_live(const Key& key, const std::string& text) {
  const bool live = text.starts_with(options_.live_line);
  if (std::exchange(live_shown_, live)) std::fputs(live ? "\r\033[K" : "\n", out_);
  put_text(key, text, true);
  if (!live) std::fputc('\n', out_);
}

// What was printed may be meant for the terminal: only text and colours pass.
void LogPrinter::put_text(const Key& key, const std::string& text, bool prefix) {
  if (prefix && options_.prefix) std::fprintf(out_, "[%s%d] ", options_.label.c_str(), key.second);
  const std::string tamed = options_.terminal && !options_.raw ? visible_log(text) : text;
  std::fwrite(tamed.data(), 1, tamed.size(), out_);
}

}  // namespace tutti::cli
