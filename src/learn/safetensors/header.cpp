#include "learn/safetensors/header.hpp"

#include <algorithm>
#include <optional>

#include "base/check.hpp"
#include "base/json/parse.hpp"
#include "base/json/write.hpp"

namespace tutti::safetensors {
namespace {

constexpr const char* metadata_key = "__metadata__";
constexpr std::size_t data_alignment = 8;
constexpr std::size_t shown_bytes_max = 200;

// A name from outside, for a message: in quotes, bounded, without bytes that a terminal would act on.
std::string shown(const std::string& name) {
  return json::write(name.substr(0, shown_bytes_max), {.ascii = true});
}

Result<json::Object> parse_object(std::span<const std::byte> bytes) {
  auto value = json::parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  if (!value && value.error().message() == json::key_is_there_twice)
    return invalid("the header has a key twice");
  if (!value || value->object() == nullptr) return invalid("the header is no JSON object");
  return std::move(*value->object());
}

std::optional<std::vector<std::int64_t>> parse_shape(const json::Value& value) {
  const json::Array* const list = value.list();
  if (list == nullptr || list->size() > dimensions_max) return std::nullopt;
  std::vector<std::int64_t> shape;
  for (const json::Value& size : *list) {
    const auto whole = size.whole();
    if (!whole || *whole < 0) return std::nullopt;
    shape.push_back(*whole);
  }
  return shape;
}

std::optional<std::pair<std::uint64_t, std::uint64_t>> parse_pair(const json::Value& value) {
  const json::Array* const list = value.list();
  if (list == nullptr || list->size() != 2) return std::nullopt;
  const auto first = list->front().count();
  const auto second = list->back().count();
  if (!first || !second) return std::nullopt;
  return std::pair(*first, *second);
}

// `data_begin` and `file_bytes` bound where the tensor's bytes may lie.
Result<Entry> parse_entry(const std::string& name, const json::Value& value, std::uint64_t data_begin,
                          std::uint64_t file_bytes) {
  const auto wrong = [&](const char* why) { return invalid(why).within("tensor " + shown(name)); };
  if (value.object() == nullptr || value.object()->size() != 3)
    return wrong("it has other fields than dtype, shape and data_offsets");
  const json::Value* const type_name = value.find("dtype");
  const json::Value* const shape_list = value.find("shape");
  const json::Value* const offset_list = value.find("data_offsets");
  if (type_name == nullptr || type_name->text() == nullptr) return wrong("its dtype is missing or no word");
  const auto type = parse_type(*type_name->text());
  if (!type) return wrong("its dtype is not known");
  if (shape_list == nullptr) return wrong("its shape is missing");
  auto shape = parse_shape(*shape_list);
  if (!shape) return wrong("its shape is no list of sizes");
  const auto offsets = offset_list == nullptr ? std::nullopt : parse_pair(*offset_list);
  if (!offsets) return wrong("its data_offsets are no two numbers");
  const auto [begin, end] = *offsets;
  if (begin > end || end > file_bytes - data_begin) return wrong("its bytes do not lie inside the file");
  const auto bytes = bytes_of(*type, *shape);
  if (!bytes || *bytes != end - begin) return wrong("its bytes are not as many as its shape asks for");
  return Entry{name, *type, std::move(*shape), data_begin + begin, data_begin + end};
}

Result<Metadata> parse_metadata(const json::Value& value) {
  if (value.object() == nullptr) return invalid("the metadata are no JSON object");
  Metadata metadata;
  for (const auto& [key, text] : *value.object()) {
    if (text.text() == nullptr) return invalid("the metadata hold something else than text");
    metadata.emplace(key, *text.text());
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
  for (const auto& [name, value] : *object) {
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
  std::vector<json::Member> members;
  if (!metadata.empty()) {
    json::Object texts;
    for (const auto& [key, text] : metadata) texts[key] = text;
    members.push_back({metadata_key, std::move(texts)});
  }
  std::uint64_t data_bytes = 0;
  for (Entry& entry : entries) {
    const auto bytes = bytes_of(entry.type, entry.shape);
    TUTTI_CHECK(bytes && entry.name != metadata_key);
    entry.begin = data_bytes;
    entry.end = data_bytes += *bytes;
    members.push_back({entry.name, json::Object{{"dtype", name_of(entry.type)},
                                                {"shape", json::array_of(entry.shape)},
                                                {"data_offsets", json::Array{entry.begin, entry.end}}}});
  }
  std::string text = json::write(json::Object(std::move(members)));
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
