#include "serve/load/archive.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/bytes.hpp"
#include "base/files/files.hpp"

namespace tutti::serve {
namespace {

// The records of a zip file, as its specification (APPNOTE 6.3) numbers their bytes.
constexpr std::size_t end_bytes = 22;
constexpr std::size_t comment_bytes_max = 65'535;
constexpr std::size_t locator_bytes = 20;
constexpr std::size_t large_end_bytes = 56;
constexpr std::size_t entry_bytes = 46;
constexpr std::string_view begin_mark{"PK\3\4", 4};
constexpr std::string_view end_mark{"PK\5\6", 4};
constexpr std::string_view locator_mark{"PK\6\7", 4};
constexpr std::string_view large_end_mark{"PK\6\6", 4};
constexpr std::string_view entry_mark{"PK\1\2", 4};

Error broken(const char* why) { return invalid(std::string("it is no whole zip file: ") + why); }

template <class T>
T number(std::string_view bytes, std::size_t at) {
  T value{};
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

struct List {
  std::uint64_t begin = 0;
  std::uint64_t bytes = 0;
};

class ArchiveReader {
 public:
  ArchiveReader(std::uint64_t bytes, const ReadArchive& read) : bytes_(bytes), read_(read) {}

  Result<std::vector<std::string>> names() const {
    const auto list = find_list();
    if (!list) return list.error();
    if (list->bytes > archive_list_bytes_max) return broken("its list of contents is too long");
    if (list->begin > bytes_ || list->bytes > bytes_ - list->begin)
      return broken("its list of contents lies outside of it");
    const auto text = part(list->begin, list->bytes);
    if (!text) return text.error();
    std::string_view rest = *text;
    std::vector<std::string> names;
    while (!rest.empty()) {
      if (rest.size() < entry_bytes || !rest.starts_with(entry_mark))
        return broken("its list of contents has what is no entry");
      const std::size_t name_bytes = number<std::uint16_t>(rest, 28);
      const std::size_t all =
          entry_bytes + name_bytes + number<std::uint16_t>(rest, 30) + number<std::uint16_t>(rest, 32);
      if (all > rest.size()) return broken("its list of contents ends in an entry");
      names.emplace_back(rest.substr(entry_bytes, name_bytes));
      rest.remove_prefix(all);
    }
    return names;
  }

 private:
  Result<std::string> part(std::uint64_t begin, std::uint64_t bytes) const {
    std::string text(bytes, '\0');
    if (auto done = read_(begin, std::as_writable_bytes(std::span(text))); !done)
      return std::move(done).error();
    return text;
  }

  Result<List> find_list() const {
    if (bytes_ < end_bytes) return broken("it is too short");
    const std::uint64_t tail_bytes = std::min<std::uint64_t>(bytes_, end_bytes + comment_bytes_max);
    const auto tail = part(bytes_ - tail_bytes, tail_bytes);
    if (!tail) return tail.error();
    const std::size_t at =
        std::string_view(*tail).substr(0, tail->size() - end_bytes + end_mark.size()).rfind(end_mark);
    if (at == std::string::npos) return broken("it has no end");
    const std::string_view end = std::string_view(*tail).substr(at);
    const List list{number<std::uint32_t>(end, 16), number<std::uint32_t>(end, 12)};
    const bool is_large =
        list.begin == 0xFFFFFFFFU || list.bytes == 0xFFFFFFFFU || number<std::uint16_t>(end, 10) == 0xFFFFU;
    return is_large ? find_large(bytes_ - tail_bytes + at) : list;
  }

  // Of files beyond 4 GiB or 65,535 entries the numbers stand in a record before the end.
  Result<List> find_large(std::uint64_t end) const {
    if (end < locator_bytes) return broken("it is too short");
    const auto locator = part(end - locator_bytes, locator_bytes);
    if (!locator) return locator.error();
    if (!locator->starts_with(locator_mark)) return broken("it has no large end");
    const auto place = number<std::uint64_t>(*locator, 8);
    if (bytes_ < large_end_bytes || place > bytes_ - large_end_bytes)
      return broken("its large end lies outside of it");
    const auto record = part(place, large_end_bytes);
    if (!record) return record.error();
    if (!record->starts_with(large_end_mark)) return broken("it has no large end");
    return List{number<std::uint64_t>(*record, 48), number<std::uint64_t>(*record, 40)};
  }

  const std::uint64_t bytes_;
  const ReadArchive& read_;
};

// "archive/code/__torch__.py": all below one folder.
bool has_inside(const std::vector<std::string>& names, std::string_view wanted, bool is_folder) {
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    const std::size_t slash = name.find('/');
    if (slash == std::string::npos) return false;
    const std::string_view inside = std::string_view(name).substr(slash + 1);
    return is_folder ? inside.starts_with(wanted) : inside == wanted;
  });
}

}  // namespace

Result<std::vector<std::string>> archive_names(std::uint64_t bytes, const ReadArchive& read) {
  return ArchiveReader(bytes, read).names();
}

bool looks_like_archive(const std::string& path) {
  const auto opened = files::open_file(path);
  if (!opened || !*opened) return false;
  std::array<std::byte, begin_mark.size()> first{};
  const auto got = files::read_some((*opened)->file.get(), first, path);
  return got && *got == first.size() && std::memcmp(first.data(), begin_mark.data(), first.size()) == 0;
}

Result<> check_script(const std::string& path) {
  const auto opened = files::open_existing_file(path);
  if (!opened) return opened.error();
  const auto names =
      archive_names(opened->bytes, [&](std::uint64_t begin, std::span<std::byte> buffer) -> Result<> {
        return files::read_at(opened->file.get(), begin, buffer, path);
      });
  if (!names) return Error(names.error()).within(path);
  if (has_inside(*names, "code/", true) && has_inside(*names, "constants.pkl", false)) return {};
  if (has_inside(*names, "data.pkl", false))
    return invalid("these are tensors alone, as torch.save writes them, and no program")
        .within(path)
        .remedy("torch.jit.script(model).save(PATH) or torch.jit.trace writes one that can be served");
  return invalid("it is a zip file, and no TorchScript archive")
      .within(path)
      .remedy("torch.jit.script(model).save(PATH) writes one");
}

}  // namespace tutti::serve
