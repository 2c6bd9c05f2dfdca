#include "net/sync/manifest.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>

#include "base/files/names.hpp"
#include "base/id.hpp"
#include "base/text.hpp"
#include "net/sync/chunks.hpp"
#include "net/sync/digest.hpp"

namespace tutti::sync {
namespace {

// The form: a first line, then one record an entry, the sign of its kind in front. No path holds a NUL, so a
// NUL ends it whatever else it holds.
//   d PATH NUL
//   f HASH,HASH… BYTES PATH NUL  x for an executable file; one hash for each chunk
//   l PATH NUL TARGET NUL
constexpr std::string_view first_line = "tutti manifest 1\n";
constexpr char end_of_text = '\0';

constexpr std::size_t path_bytes_max = 4095;  // of Linux
constexpr std::size_t name_bytes_max = 255;   // of Linux

std::string joined(const std::vector<std::string>& hashes) {
  std::string text;
  for (const auto& hash : hashes) text += (text.empty() ? "" : ",") + hash;
  return text;
}

void append_entry(std::string& encoded, const Entry& entry) {
  switch (entry.kind) {
    case Entry::Kind::folder:
      encoded += "d " + entry.path;
      break;
    case Entry::Kind::file:
      encoded += (entry.executable ? "x " : "f ") + joined(entry.chunks) + ' ' +
                 std::to_string(entry.bytes.count()) + ' ' + entry.path;
      break;
    case Entry::Kind::link:
      encoded += "l " + entry.path + end_of_text + entry.link_target;
      break;
  }
  encoded += end_of_text;
}

// Takes the records apart. What the fields mean is for validate() to judge.
class Reader {
 public:
  explicit Reader(std::string_view encoded) : rest_(encoded) {}

  bool at_end() const { return rest_.empty(); }

  std::optional<Entry> entry() {
    const auto sign = until(' ');
    if (sign == "d") return folder();
    if (sign == "f" || sign == "x") return file(sign == "x");
    if (sign == "l") return link();
    return std::nullopt;
  }

 private:
  std::optional<std::string_view> until(char end) {
    const auto at = rest_.find(end);
    if (at == std::string_view::npos) return std::nullopt;
    const auto field = rest_.substr(0, at);
    rest_.remove_prefix(at + 1);
    return field;
  }

  std::optional<Entry> folder() {
    const auto path = until(end_of_text);
    if (!path) return std::nullopt;
    return Entry{.path = std::string(*path), .kind = Entry::Kind::folder};
  }

  std::optional<Entry> file(bool executable) {
    const auto hashes = until(' ');
    const auto number = until(' ');
    const auto path = until(end_of_text);
    if (!hashes || !number || !path) return std::nullopt;
    const auto bytes = parse_id_number(*number);
    if (!bytes || *bytes > std::numeric_limits<std::int64_t>::max()) return std::nullopt;
    const auto chunks = split(*hashes, ',');
    return Entry{.path = std::string(*path),
                 .kind = Entry::Kind::file,
                 .chunks = {chunks.begin(), chunks.end()},
                 .bytes = Bytes(static_cast<std::int64_t>(*bytes)),
                 .executable = executable};
  }

  std::optional<Entry> link() {
    const auto path = until(end_of_text);
    const auto target = until(end_of_text);
    if (!path || !target) return std::nullopt;
    return Entry{.path = std::string(*path), .kind = Entry::Kind::link, .link_target = std::string(*target)};
  }

  std::string_view rest_;
};

bool has_nul(std::string_view text) { return text.find('\0') != std::string_view::npos; }

bool is_name(std::string_view part) {
  return !part.empty() && part.size() <= name_bytes_max && part != "." && part != "..";
}

// An absolute path begins with an empty part, which is no name.
bool is_path(std::string_view path) {
  if (path.size() > path_bytes_max || has_nul(path)) return false;
  const auto parts = split(path, '/');
  return std::all_of(parts.begin(), parts.end(), is_name);
}

// Checks entry after entry, in the manifest's order.
class Validator {
 public:
  explicit Validator(const Limits& limits) : limits_(limits) {}

  Result<> check(const Entry& entry) {
    if (auto placed = check_path(entry.path); !placed) return placed;
    switch (entry.kind) {
      case Entry::Kind::folder:
        folders_.push_back(entry.path);
        return {};
      case Entry::Kind::file:
        return check_file(entry);
      case Entry::Kind::link:
        if (link_stays_inside(entry.path, entry.link_target)) return {};
        return invalid("the link leads out of the folder");
    }
    return invalid("the entry is of no known kind");
  }

 private:
  Result<> check_path(std::string_view path) {
    if (!is_path(path)) return invalid("the path is not one inside a folder");
    if (last_ && path <= *last_) return invalid("the path is not in order");
    last_ = path;
    const auto slash = path.rfind('/');
    if (slash == std::string_view::npos) return {};
    // Folders arrive in order, so the list is sorted.
    if (std::binary_search(folders_.begin(), folders_.end(), path.substr(0, slash))) return {};
    return invalid("the path is not below a folder of the manifest");
  }

  Result<> check_file(const Entry& entry) {
    if (!std::all_of(entry.chunks.begin(), entry.chunks.end(), is_hash))
      return invalid("the hash is not 64 hexadecimal digits");
    if (entry.bytes < Bytes(0)) return invalid("the size is negative");
    if (entry.chunks.size() != chunk_count(entry.bytes))
      return invalid("the file has not as many chunks as its size asks for");
    if (entry.bytes > limits_.bytes_max - bytes_) {
      return invalid("the files hold more than " + format_bytes(limits_.bytes_max));
    }
    bytes_ += entry.bytes;
    return {};
  }

  Limits limits_;
  Bytes bytes_;
  std::optional<std::string_view> last_;
  std::vector<std::string_view> folders_;
};

Error too_many(const Limits& limits) {
  return invalid("the manifest has more than " + std::to_string(limits.entries_max) + " entries");
}

}  // namespace

bool link_stays_inside(std::string_view path, std::string_view target) {
  if (target.empty() || target.front() == '/' || target.size() > path_bytes_max || has_nul(target))
    return false;
  auto climbs_left = std::count(path.begin(), path.end(), '/');
  bool descended = false;
  for (const auto part : split(target, '/')) {
    if (part.empty() || part == ".") continue;
    if (part != "..") {
      descended = true;
    } else if (descended || climbs_left-- == 0) {
      return false;
    }
  }
  return true;
}

Result<> validate(const Manifest& manifest, const Limits& limits) {
  if (manifest.entries.size() > limits.entries_max) return too_many(limits);
  Validator validator(limits);
  for (const auto& entry : manifest.entries) {
    if (auto checked = validator.check(entry); !checked) {
      return std::move(checked).error().within("manifest entry " + files::shown(entry.path));
    }
  }
  return {};
}

std::string encode(const Manifest& manifest) {
  std::string encoded(first_line);
  for (const auto& entry : manifest.entries) append_entry(encoded, entry);
  return encoded;
}

Result<Manifest> decode(std::string_view encoded, const Limits& limits) {
  if (encoded.size() > static_cast<std::size_t>(limits.encoded_bytes_max.count())) {
    return invalid("the manifest is larger than " + format_bytes(limits.encoded_bytes_max));
  }
  if (!encoded.starts_with(first_line)) return invalid("this is not a manifest of a folder");
  Reader reader(encoded.substr(first_line.size()));
  Manifest manifest;
  while (!reader.at_end()) {
    if (manifest.entries.size() == limits.entries_max) return too_many(limits);
    auto entry = reader.entry();
    if (!entry) return invalid("the manifest is damaged");
    manifest.entries.push_back(std::move(*entry));
  }
  if (auto valid = validate(manifest, limits); !valid) return std::move(valid).error();
  return manifest;
}

}  // namespace tutti::sync
