#include "learn/safetensors/header.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>

#include <nlohmann/json.hpp>

#include "base/check.hpp"

namespace tutti::safetensors {
namespace {

using nlohmann::json;

constexpr const char* metadata_key = "__metadata__";
constexpr std::size_t data_alignment = 8;
constexpr std::size_t shown_bytes_max = 200;

// A name from outside, for a message: in quotes, bounded, without bytes that a terminal would act on.
std::string shown(const std::string& name) {
  return json(name.substr(0, shown_bytes_max)).dump(-1, ' ', true, json::error_handler_t::replace);
}

// The library keeps the last of two equal keys; a file in which readers may see either is refused.
class UniqueKeys {
 public:
  bool operator()(int depth, json::parse_event_t event, const json& value) {
    const auto level = static_cast<std::size_t>(depth);
    if (event == json::parse_event_t::object_start) {
      keys_.resize(std::max(keys_.size(), level + 1));
      keys_[level].clear();
    } else if (event == json::parse_event_t::key) {
      repeated_ = repeated_ || !keys_[level - 1].insert(value.get<std::string>()).second;
    }
    return true;
  }
  bool repeated() const { return repeated_; }

 private:
  std::vector<std::set<std::string>> keys_;
  bool repeated_ = false;
};

Result<json> parse_object(std::span<const std::byte> bytes) {
  UniqueKeys keys;
  const auto* text = reinterpret_cast<const char*>(bytes.data());
  json object = json::parse(
      text, text + bytes.size(),
      [&keys](int depth, json::parse_event_t event, json& value) { return keys(depth, event, value); },
      false);
  if (!object.is_object()) return invalid("the header is no JSON object");
  if (keys.repeated()) return invalid("the header has a key twice");
  return object;
}

std::optional<std::vector<std::int64_t>> parse_shape(const json& value) {
  if (!value.is_array() || value.size() > dimensions_max) return std::nullopt;
  std::vector<std::int64_t> shape;
  for (const json& size : value) {
    constexpr std::uint64_t size_max = std::numeric_limits<std::int64_t>::max();
    if (!size.is_number_unsigned() || size.get<std::uint64_t>() > size_max) return std::nullopt;
    shape.push_back(size.get<std::int64_t>());
  }
  return shape;
}

bool is_pair_of_numbers(const json& value) {
  return value.is_array() && value.size() == 2 && value[0].is_number_unsigned() &&
         value[1].is_number_unsigned();
}

// `data_begin` and `file_bytes` bound where the tensor's bytes may lie.
Result<Entry> parse_entry(const std::string& name, const json& value, std::uint64_t data_begin,
                          std::uint64_t file_bytes) {
  const auto wrong = [&](const char* why) { return invalid(why).within("tensor " + shown(name)); };
  if (!value.is_object() || value.size() != 3)
    return wrong("it has other fields than dtype, shape and data_offsets");
  const auto type_name = value.find("dtype");
  const auto shape_list = value.find("shape");
  const auto offsets = value.find("data_offsets");
  if (type_name == value.end() || !type_name->is_string()) return wrong("its dtype is missing or no word");
  const auto type = parse_type(type_name->get_ref<const std::string&>());
  if (!type) return wrong("its dtype is not known");
  if (shape_list == value.end()) return wrong("its shape is missing");
  auto shape = parse_shape(*shape_list);
  if (!shape) return wrong("its shape is no list of sizes");
  if (offsets == value.end() || !is_pair_of_numbers(*offsets))
    return wrong("its data_offsets are no two numbers");
  const auto begin = (*offsets)[0].get<std::uint64_t>();
  const auto end = (*offsets)[1].get<std::uint64_t>();
  if (begin > end || end > file_bytes - data_begin) return wrong("its bytes do not lie inside the file");
  const auto bytes = bytes_of(*type, *shape);
  if (!bytes || *bytes != end - begin) return wrong("its bytes are not as many as its shape asks for");
  return Entry{name, *type, std::move(*shape), data_begin + begin, data_begin + end};
}

Result<Metadata> parse_metadata(const json& value) {
  if (!value.is_object()) return invalid("the metadata are no JSON object");
  Metadata metadata;
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string()) return invalid("the metadata hold something else than text");
    metadata.emplace(key, text.get<std::string>());
  }
  return metadata;
}

// Every byte belongs to one tensor: no gap, no overlap, nothing behind the last.
Result<> check_places(const std::vector<Entry>& entries, std::uint64_t data_begin, std::uint64_t file_bytes) {
  std::vector<const Entry*> places;
  places.reserve(entries.size());
  for (const Entry& entry : entries) places.push_back(&entry);
  std::ranges::sort(places, {}, [](const Entry* entry) { return std::pair(entry->begin, entry->end); });
  std::uint64_t at = data_begin;
  for (const Entry* entry : places) {
    if (entry->begin != at) {
      return invalid(entry->begin < at ? "its bytes overlap another's" : "there is a gap before its bytes")
          .within("tensor " + shown(entry->name));
    }
    at = entry->end;
  }
  if (at != file_bytes) return invalid("the file goes on behind its tensors");
  return {};
}

std::uint64_t little_endian(std::span<const std::byte, length_bytes> bytes) {
  std::uint64_t number = 0;
  for (std::size_t at = length_bytes; at-- > 0;)
    number = number << 8 | std::to_integer<std::uint64_t>(bytes[at]);
  return number;
}

std::string little_endian(std::uint64_t number) {
  std::string bytes;
  for (std::size_t at = 0; at < length_bytes; ++at) bytes += static_cast<char>(number >> (8 * at) & 0xffU);
  return bytes;
}

}  // namespace

const Entry* Header::find(std::string_view name) const {
  const auto found = std::ranges::lower_bound(entries, name, {}, &Entry::name);
  return found != entries.end() && found->name == name ? &*found : nullptr;
}

Result<std::uint64_t> header_bytes(std::span<const std::byte, length_bytes> length,
                                   std::uint64_t file_bytes) {
  const std::uint64_t json_bytes = little_endian(length);
  if (json_bytes > json_bytes_max) return invalid("the header is longer than 100 MB");
  if (file_bytes < length_bytes || json_bytes > file_bytes - length_bytes) {
    return invalid("the header is longer than the file");
  }
  return length_bytes + json_bytes;
}

Result<Header> parse_header(std::span<const std::byte> bytes, std::uint64_t file_bytes) {
  if (bytes.size() < length_bytes) return invalid("the file is too short for a header");
  const auto data_begin = header_bytes(bytes.first<length_bytes>(), file_bytes);
  if (!data_begin) return data_begin.error();
  if (*data_begin > bytes.size()) return invalid("the header is cut off");
  const auto object = parse_object(bytes.first(*data_begin).subspan(length_bytes));
  if (!object) return object.error();
  Header header;
  for (const auto& [name, value] : object->items()) {
    if (name == metadata_key) {
      auto metadata = parse_metadata(value);
      if (!metadata) return std::move(metadata).error();
      header.metadata = std::move(*metadata);
    } else {
      auto entry = parse_entry(name, value, *data_begin, file_bytes);
      if (!entry) return std::move(entry).error();
      header.entries.push_back(std::move(*entry));
    }
  }
  if (auto placed = check_places(header.entries, *data_begin, file_bytes); !placed) return placed.error();
  std::ranges::sort(header.entries, {}, &Entry::name);
  return header;
}

Layout lay_out(std::vector<Entry> entries, const Metadata& metadata) {
  json object = json::object();
  if (!metadata.empty()) object[metadata_key] = metadata;
  std::uint64_t data_bytes = 0;
  for (Entry& entry : entries) {
    const auto bytes = bytes_of(entry.type, entry.shape);
    TUTTI_CHECK(bytes && entry.name != metadata_key && !object.contains(entry.name));
    entry.begin = data_bytes;
    entry.end = data_bytes += *bytes;
    object[entry.name] = {
        {"dtype", name_of(entry.type)}, {"shape", entry.shape}, {"data_offsets", {entry.begin, entry.end}}};
  }
  std::string text = object.dump(-1, ' ', false, json::error_handler_t::replace);
  while ((length_bytes + text.size()) % data_alignment != 0) text += ' ';
  Layout layout{.header = little_endian(text.size()) + text, .entries = std::move(entries)};
  for (Entry& entry : layout.entries) {
    entry.begin += layout.header.size();
    entry.end += layout.header.size();
  }
  layout.file_bytes = layout.header.size() + data_bytes;
  return layout;
}

}  // namespace tutti::safetensors
