#include "control/audit/shelf.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <optional>

#include "base/bytes.hpp"
#include "base/files/descriptor.hpp"
#include "base/files/files.hpp"

namespace tutti::audit {
namespace {

constexpr std::string_view name_begin = "audit-";
constexpr std::string_view name_end = ".jsonl";
constexpr std::string_view torn_end = ".torn";
constexpr std::size_t number_digits = 20;

std::string name_of(std::uint64_t first) {
  char number[number_digits + 1];
  std::snprintf(number, sizeof number, "%020llu", static_cast<unsigned long long>(first));
  return std::string(name_begin) + number + std::string(name_end);
}

struct File {
  std::string name;
  std::uint64_t first = 0;
};

// In the order of their lines.
Result<std::vector<File>> files_in(const std::string& folder) {
  auto names = files::list_folder(folder);
  if (!names) return std::move(names).error();
  std::vector<File> found;
  if (!*names) return found;
  for (const std::string& name : **names) {
    if (name.size() != name_begin.size() + number_digits + name_end.size()) continue;
    if (!name.starts_with(name_begin) || !name.ends_with(name_end)) continue;
    File file{name, 0};
    const char* const digits = name.data() + name_begin.size();
    const auto parsed = std::from_chars(digits, digits + number_digits, file.first);
    if (parsed.ec == std::errc() && parsed.ptr == digits + number_digits) found.push_back(std::move(file));
  }
  return found;
}

Bytes size_of(const std::string& path) {
  struct stat found {};
  return ::stat(path.c_str(), &found) == 0 ? Bytes(found.st_size) : Bytes(0);
}

Result<std::string> text_of(const std::string& path) {
  auto text = files::read_plain_file(path, static_cast<std::size_t>(read_bytes_max.count()));
  if (!text) return std::move(text).error();
  return text->value_or("");
}

// How much of it are whole lines: up to the last one that is what it was written as.
std::size_t whole_part(std::string_view text, Head& head) {
  for (std::size_t end = text.rfind('\n'); end != std::string_view::npos;
       end = end == 0 ? std::string_view::npos : text.rfind('\n', end - 1)) {
    const std::size_t before = end == 0 ? std::string_view::npos : text.rfind('\n', end - 1);
    const std::size_t begin = before == std::string_view::npos ? 0 : before + 1;
    if (auto checked = check_line(text.substr(begin, end - begin), std::nullopt)) {
      head = *std::move(checked);
      return end + 1;
    }
  }
  return 0;
}

// What is no whole line goes into a file beside: of a file that has none, all of it. A disk may have no room
// for that, and then all stays as it is.
Result<> put_aside(const std::string& path, std::string_view text, std::size_t whole) {
  const std::string torn = path + std::string(torn_end);
  if (text.empty()) return ::unlink(path.c_str()) == 0 ? Result<>() : failed("cannot remove " + path);
  if (whole == 0)
    return ::rename(path.c_str(), torn.c_str()) == 0 ? Result<>() : failed("cannot put aside " + path);
  if (whole == text.size()) return {};
  if (auto kept = files::replace_file(torn, text.substr(whole), {.durable = true}); !kept) return kept;
  return ::truncate(path.c_str(), static_cast<off_t>(whole)) == 0 ? Result<>() : failed("cannot cut " + path);
}

// Each with its end; what has none is no line.
std::string_view take_line(std::string_view& text) {
  const std::size_t end = text.find('\n');
  const std::string_view line = end == std::string_view::npos ? text : text.substr(0, end + 1);
  text.remove_prefix(line.size());
  return line;
}

// About so much of it: whole lines, at least one.
std::string_view take_piece(std::string_view& text, Bytes most) {
  const std::string_view all = text;
  while (!text.empty() && all.size() - text.size() < static_cast<std::size_t>(most.count())) take_line(text);
  return all.substr(0, all.size() - text.size());
}

std::string_view bare(std::string_view line) {
  if (line.ends_with('\n')) line.remove_suffix(1);
  return line;
}

// When it was written, "" if nobody can tell. What this program has written has that behind the number.
std::string time_of(std::string_view line) {
  constexpr std::string_view mark = ",\"at\":\"";
  const std::size_t begin = line.find(',');
  if (begin != std::string_view::npos && line.substr(begin).starts_with(mark)) {
    const std::string_view rest = line.substr(begin + mark.size());
    return std::string(rest.substr(0, rest.find('"')));
  }
  const auto label = label_of(line);
  return label ? label->at : "";
}

// Looks at one line after the other until the page is full. What is in the files is shown as it lies there,
// in its place: a line that nobody can read, or that comes again, is for whoever wants to see all to judge.
// Of many such in a row he gets the first, so that every page has an end.
class Reader {
 public:
  explicit Reader(const Query& query) : query_(query), seen_(query.after), began_(query.after == 0) {}

  // False if the page is full before this line.
  bool look(std::string_view line) {
    const auto head = cluster::audit_head_of(bare(line));
    if (!began_) {
      began_ = head && head->last >= query_.after;
      if (!began_ || head->last == query_.after) return true;
    }
    const bool is_next = head && head->last > seen_;
    if (!is_next && !follows_good_) return true;
    // Every page gets further: the next one begins behind the last number of this.
    const bool is_full = page_.lines.size() >= query_.lines_max || looked_ > page_bytes_max;
    if (is_next && is_full && seen_ > query_.after) return false;
    looked_ = looked_ + Bytes(static_cast<std::int64_t>(line.size()));
    if (is_next) seen_ = head->last;
    follows_good_ = is_next;
    if (is_asked_for(line)) page_.lines.emplace_back(bare(line));
    return true;
  }
  // What the store has of the files' lines is no part of the log twice.
  bool look_in_store(std::string_view line) {
    const auto head = cluster::audit_head_of(bare(line));
    if (head && head->last <= seen_) return true;
    began_ = true;
    return look(line);
  }
  Page fill(bool more) {
    page_.next = more ? seen_ : 0;
    return std::move(page_);
  }

 private:
  bool is_asked_for(std::string_view line) const {
    if (query_.since.empty() && query_.who.empty()) return true;
    if (!query_.since.empty() && time_of(line) < query_.since) return false;
    const auto label = label_of(line);
    return label && (query_.who.empty() || label->who == query_.who);
  }

  const Query& query_;
  std::uint64_t seen_;
  bool began_;                // with what lies behind the page before
  bool follows_good_ = true;  // the line before was one that goes on from those before it
  Bytes looked_{};
  Page page_;
};

bool look_through(Reader& reader, std::string_view text) {
  while (!text.empty()) {
    if (!reader.look(take_line(text))) return false;
  }
  return true;
}

// The latest time of all its lines, which a clock that was set may have put in any order.
std::string latest_in(std::string_view text) {
  std::string latest;
  while (!text.empty()) {
    latest = std::max(latest, time_of(take_line(text)));
  }
  return latest;
}

// Of files in their order, the first one whose lines are not all on the pages before.
std::size_t first_of(const std::vector<File>& all, const Query& query) {
  std::size_t at = 0;
  while (at + 1 < all.size() && all[at + 1].first <= query.after + 1) ++at;
  return at;
}

// All of its lines, and the file itself, are of an earlier time. One that cannot be read is not.
bool is_all_before(const std::string& path, const std::string& time, Instant oldest) {
  struct stat found {};
  if (::stat(path.c_str(), &found) != 0 || Instant(std::chrono::seconds(found.st_mtim.tv_sec)) >= oldest)
    return false;
  const auto text = text_of(path);
  if (!text) return false;
  const std::string latest = latest_in(*text);
  return !latest.empty() && latest < time;
}

}  // namespace

Result<Shelf> Shelf::open(std::string folder) {
  const auto all = files_in(folder);
  if (!all) return Error(all.error()).within("the audit log");
  if (all->empty()) return Shelf(std::move(folder), {}, "", Bytes(0));
  for (auto file = all->rbegin(); file != all->rend(); ++file) {
    const std::string path = folder + "/" + file->name;
    const auto text = text_of(path);
    if (!text) return Error(text.error()).within("the audit log");
    Head head;
    const std::size_t whole = whole_part(*text, head);
    const auto aside = put_aside(path, *text, whole);
    if (whole == 0) continue;
    if (aside)
      return Shelf(std::move(folder), std::move(head), path, Bytes(static_cast<std::int64_t>(whole)));
    Shelf shelf(std::move(folder), std::move(head), "", Bytes(0));
    shelf.amiss_ = aside.error().text() + ": half a line stays there, and another file begins";
    return shelf;
  }
  return Shelf(std::move(folder), {}, "", Bytes(0));
}

Result<> Shelf::append(std::string_view lines) {
  while (!lines.empty()) {
    const auto head = cluster::audit_head_of(bare(lines.substr(0, lines.find('\n'))));
    if (!head || head->last > head_.last) break;
    take_line(lines);
  }
  while (!lines.empty()) {
    const std::string_view piece = take_piece(lines, file_bytes_max);
    const auto head = cluster::audit_head_of_lines(piece);
    if (!head) return invalid("what is to be written is no audit log");
    if (auto written = write(piece); !written) return std::move(written).error().within("the audit log");
    head_ = *head;
  }
  return {};
}

// A write that was cut short by a full disk is taken back, so that the next one does not follow half a line.
Result<> Shelf::write(std::string_view lines) {
  if (auto made = files::make_folder(folder_, 0700); !made) return made;
  if (!newest_.empty() && !is_as_it_was()) {
    amiss_ =
        newest_ + " was changed or removed by somebody else: what it had is lost, and another one begins";
    newest_.clear();
  }
  if (newest_.empty() || newest_bytes_ >= file_bytes_max) {
    const auto first = cluster::audit_head_of(bare(lines.substr(0, lines.find('\n'))));
    newest_ = folder_ + "/" + name_of(first ? first->last : head_.last + 1);
    newest_bytes_ = Bytes(0);
  }
  const bool begins = newest_bytes_ == Bytes(0);
  const files::FileDescriptor file(
      ::open(newest_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file.valid()) return failed("cannot open " + newest_);
  if (::ftruncate(file.get(), newest_bytes_.count()) != 0) return failed("cannot write " + newest_);
  auto done = files::write_at(file.get(), static_cast<std::uint64_t>(newest_bytes_.count()), as_bytes(lines),
                              newest_);
  if (done) done = files::sync_file(file.get(), newest_);
  if (done && begins) done = files::sync_folder(folder_);
  if (!done) {
    // Where even that fails, the next write, or the next start, cuts it.
    [[maybe_unused]] const int cut = ::ftruncate(file.get(), newest_bytes_.count());
    is_cut_short_ = true;
    return done;
  }
  is_cut_short_ = false;
  newest_bytes_ = newest_bytes_ + Bytes(static_cast<std::int64_t>(lines.size()));
  return {};
}

// What this one has written is there, and nothing else.
bool Shelf::is_as_it_was() const {
  struct stat found {};
  if (::lstat(newest_.c_str(), &found) != 0) return newest_bytes_ == Bytes(0);
  const Bytes bytes(found.st_size);
  return S_ISREG(found.st_mode) && (bytes == newest_bytes_ || (is_cut_short_ && bytes > newest_bytes_));
}

Result<> Shelf::trim(Bytes most, Instant oldest) {
  const auto all = files_in(folder_);
  if (!all) return all.error();
  Bytes bytes;
  for (const File& file : *all) bytes = bytes + size_of(folder_ + "/" + file.name);
  const std::string before = oldest == Instant() ? "" : format_instant(oldest);
  for (std::size_t at = 0; at + 1 < all->size(); ++at) {
    const std::string path = folder_ + "/" + (*all)[at].name;
    const bool is_too_much = most > Bytes(0) && bytes > most;
    if (!is_too_much && (before.empty() || !is_all_before(path, before, oldest))) break;
    bytes = bytes - size_of(path);
    if (::unlink(path.c_str()) != 0) return failed("cannot remove " + path);
  }
  return {};
}

Result<Page> read_page(const std::string& folder, std::string_view newest, const Query& query) {
  Reader reader(query);
  const auto all = files_in(folder);
  if (!all) return Error(all.error()).within("the audit log");
  for (std::size_t at = first_of(*all, query); at < all->size(); ++at) {
    const auto text = text_of(folder + "/" + (*all)[at].name);
    if (!text) return Error(text.error()).within("the audit log");
    // What is being written now has no end yet.
    const std::string_view whole = std::string_view(*text).substr(0, text->rfind('\n') + 1);
    if (!look_through(reader, whole)) return reader.fill(true);
  }
  while (!newest.empty()) {
    if (!reader.look_in_store(take_line(newest))) return reader.fill(true);
  }
  return reader.fill(false);
}

Bytes shelf_bytes(const std::string& folder) {
  Bytes bytes;
  const auto all = files_in(folder);
  for (const File& file : all ? *all : std::vector<File>()) bytes = bytes + size_of(folder + "/" + file.name);
  return bytes;
}

}  // namespace tutti::audit
