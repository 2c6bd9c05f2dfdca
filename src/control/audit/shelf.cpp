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

// Looks at one line after the other until the page is full.
class Reader {
 public:
  explicit Reader(const Query& query) : query_(query), seen_(query.after) {}

  // False if the page is full before this line.
  bool look(std::string_view line) {
    const auto head = cluster::audit_head_of(bare(line));
    // One that nobody can read is shown to those who want to see all: it is for them to judge.
    if (head && head->last <= seen_) return true;
    if (page_.lines.size() >= query_.lines_max || looked_ > page_bytes_max) return false;
    looked_ = looked_ + Bytes(static_cast<std::int64_t>(line.size()));
    if (head) seen_ = head->last;
    if (is_asked_for(line)) page_.lines.emplace_back(bare(line));
    return true;
  }
  Page fill(bool more) {
    page_.next = more ? seen_ : 0;
    return std::move(page_);
  }

 private:
  bool is_asked_for(std::string_view line) const {
    if (query_.since.empty() && query_.who.empty()) return true;
    const auto label = label_of(line);
    if (!label) return false;
    return label->at >= query_.since && (query_.who.empty() || label->who == query_.who);
  }

  const Query& query_;
  std::uint64_t seen_;
  Bytes looked_{};
  Page page_;
};

bool look_through(Reader& reader, std::string_view text) {
  while (!text.empty()) {
    if (!reader.look(take_line(text))) return false;
  }
  return true;
}

// The time of the first line of a file, "" if it cannot be told.
std::string begins_at(const std::string& path) {
  std::string text(4 * text_bytes_max * 8, '\0');
  const files::FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  const ssize_t read = file.valid() ? ::read(file.get(), text.data(), text.size()) : -1;
  if (read <= 0) return "";
  std::string_view rest(text.data(), static_cast<std::size_t>(read));
  const auto label = label_of(take_line(rest));
  return label ? label->at : "";
}

// Of files in their order, the first in which there may be such a line. Whether one ends before that is told
// by where the next one begins.
std::size_t first_of(const std::string& folder, const std::vector<File>& all, const Query& query) {
  std::size_t at = 0;
  while (at + 1 < all.size() && all[at + 1].first <= query.after + 1) ++at;
  while (!query.since.empty() && at + 1 < all.size()) {
    const std::string next = begins_at(folder + "/" + all[at + 1].name);
    if (next.empty() || next >= query.since) break;
    ++at;
  }
  return at;
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
    if (whole < text->size()) {
      const std::string torn = path + std::string(torn_end);
      if (auto kept = files::replace_file(torn, std::string_view(*text).substr(whole), {.durable = true});
          !kept)
        return std::move(kept).error().within("the audit log");
      if (::truncate(path.c_str(), static_cast<off_t>(whole)) != 0)
        return failed("cannot cut " + path).within("the audit log");
    }
    if (whole > 0)
      return Shelf(std::move(folder), std::move(head), path, Bytes(static_cast<std::int64_t>(whole)));
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
  const bool is_full = newest_.empty() || newest_bytes_ >= file_bytes_max;
  if (is_full) {
    if (auto made = files::make_folder(folder_, 0700); !made) return made;
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
    return done;
  }
  newest_bytes_ = newest_bytes_ + Bytes(static_cast<std::int64_t>(lines.size()));
  return {};
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
    const std::string ended = before.empty() ? "" : begins_at(folder_ + "/" + (*all)[at + 1].name);
    if (!is_too_much && (ended.empty() || ended >= before)) break;
    bytes = bytes - size_of(path);
    if (::unlink(path.c_str()) != 0) return failed("cannot remove " + path);
  }
  return {};
}

Result<Page> read_page(const std::string& folder, std::string_view newest, const Query& query) {
  Reader reader(query);
  const auto all = files_in(folder);
  if (!all) return Error(all.error()).within("the audit log");
  for (std::size_t at = first_of(folder, *all, query); at < all->size(); ++at) {
    const auto text = text_of(folder + "/" + (*all)[at].name);
    if (!text) return Error(text.error()).within("the audit log");
    // What is being written now has no end yet.
    const std::string_view whole = std::string_view(*text).substr(0, text->rfind('\n') + 1);
    if (!look_through(reader, whole)) return reader.fill(true);
  }
  const bool all_seen = look_through(reader, newest);
  return reader.fill(!all_seen);
}

Bytes shelf_bytes(const std::string& folder) {
  Bytes bytes;
  const auto all = files_in(folder);
  for (const File& file : all ? *all : std::vector<File>()) bytes = bytes + size_of(folder + "/" + file.name);
  return bytes;
}

}  // namespace tutti::audit
