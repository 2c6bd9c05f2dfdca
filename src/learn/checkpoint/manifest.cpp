#include "learn/checkpoint/manifest.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "base/bytes.hpp"
#include "base/files/files.hpp"
#include "base/hash/hash.hpp"
#include "base/json/parse.hpp"
#include "base/json/write.hpp"
#include "base/units.hpp"
#include "learn/checkpoint/files.hpp"

namespace tutti::checkpoint {
namespace {

constexpr std::string_view format_name = "tutti checkpoint 1";
// {"content":…,"hash":"0123456789abcdef"}: the hash is of the content's very bytes.
constexpr std::string_view before_content = "{\"content\":";
constexpr std::string_view before_hash = ",\n\"hash\":\"";
constexpr std::string_view behind_hash = "\"}\n";
constexpr std::size_t hash_digits = 16;

std::string hex(std::uint64_t hash) {
  std::array<char, hash_digits> digits{};
  digits.fill('0');
  std::array<char, hash_digits> written{};
  const auto end = std::to_chars(written.begin(), written.end(), hash, 16).ptr;
  std::copy(written.begin(), end, digits.end() - (end - written.begin()));
  return {digits.begin(), digits.end()};
}

std::optional<std::uint64_t> parse_hex(std::string_view digits) {
  std::uint64_t hash = 0;
  const auto* end = digits.data() + digits.size();
  const auto parsed = std::from_chars(digits.data(), end, hash, 16);
  if (digits.size() != hash_digits || parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  return hash;
}

std::string hash_of(std::string_view text) { return hex(hash64(as_bytes(text))); }

const json::Value nothing;

// Takes the fields of an object, and remembers the first that is missing or of another kind.
class Fields {
 public:
  explicit Fields(const json::Value& object) : object_(object) {}

  std::string text(const char* key) {
    const std::string* const found = field(key).text();
    if (found == nullptr) note(key);
    return found == nullptr ? "" : *found;
  }
  std::uint64_t count(const char* key) {
    const auto found = field(key).count();
    if (!found) note(key);
    return found.value_or(0);
  }
  std::int64_t whole(const char* key) {
    const std::uint64_t value = count(key);
    if (value > std::numeric_limits<std::int64_t>::max()) note(key);
    return static_cast<std::int64_t>(value);
  }
  double number_or_nan(const char* key) {
    const json::Value* const found = object_.find(key);
    if (found == nullptr || (!found->is_null() && !found->number())) note(key);
    return field(key).number().value_or(std::numeric_limits<double>::quiet_NaN());
  }
  std::vector<std::int64_t> sizes(const char* key) {
    std::vector<std::int64_t> all;
    for (const json::Value& value : list(key)) {
      const std::int64_t size = value.whole().value_or(-1);
      if (size < 0) note(key);
      all.push_back(size < 0 ? 0 : size);
    }
    return all;
  }
  const json::Array& list(const char* key) {
    static const json::Array empty;
    const json::Array* const found = field(key).list();
    if (found == nullptr) note(key);
    return found == nullptr ? empty : *found;
  }
  const json::Value& object(const char* key) {
    const json::Value& found = field(key);
    if (found.object() == nullptr) note(key);
    return found;
  }
  safetensors::Type type(const char* key) {
    const auto parsed = safetensors::parse_type(text(key));
    if (!parsed) note(key);
    return parsed ? *parsed : safetensors::Type::f32;
  }
  void note(const char* key) {
    if (problem_.empty()) problem_ = "'" + std::string(key) + "' is missing or wrong";
  }
  const std::string& problem() const { return problem_; }

 private:
  const json::Value& field(const char* key) const {
    const json::Value* const found = object_.find(key);
    return found == nullptr ? nothing : *found;
  }

  const json::Value& object_;
  std::string problem_;
};

Result<> check(const PieceRecord& piece, std::uint64_t file_bytes) {
  const auto wrong = [&](const char* why) { return invalid(why).within("tensor '" + piece.tensor + "'"); };
  if (!safetensors::bytes_of(piece.type, piece.shape)) return wrong("its shape is none");
  if (!is_inside(piece.box, piece.shape)) return wrong("a piece does not lie inside it");
  if (piece.begin > piece.end || piece.end > file_bytes) return wrong("a piece does not lie inside its file");
  if (safetensors::bytes_of(piece.type, piece.box.extent) != piece.end - piece.begin) {
    return wrong("a piece has not as many bytes as elements");
  }
  return {};
}

Result<> check(const FileRecord& file) {
  if (!is_file_name(file.name)) return invalid("a file's name is not one inside the folder");
  const std::uint64_t blocks = file.bytes / block_bytes + (file.bytes % block_bytes == 0 ? 0 : 1);
  if (file.blocks.size() != blocks) return invalid("it has not as many hashes as blocks").within(file.name);
  for (const PieceRecord& piece : file.pieces) {
    if (auto fine = check(piece, file.bytes); !fine) return std::move(fine).error().within(file.name);
  }
  return {};
}

json::Object to_json(const PieceRecord& piece) {
  return {{"tensor", piece.tensor},
          {"type", safetensors::name_of(piece.type)},
          {"shape", json::array_of(piece.shape)},
          {"offset", json::array_of(piece.box.offset)},
          {"extent", json::array_of(piece.box.extent)},
          {"begin", piece.begin},
          {"end", piece.end}};
}

Result<PieceRecord> parse_piece(const json::Value& object) {
  Fields fields(object);
  PieceRecord piece{.tensor = fields.text("tensor"),
                    .type = fields.type("type"),
                    .shape = fields.sizes("shape"),
                    .box = {fields.sizes("offset"), fields.sizes("extent")},
                    .begin = fields.count("begin"),
                    .end = fields.count("end")};
  if (!fields.problem().empty()) return invalid(fields.problem()).within("a piece");
  return piece;
}

json::Object to_json(const FileRecord& file) {
  json::Array pieces;
  for (const PieceRecord& piece : file.pieces) pieces.push_back(to_json(piece));
  std::string hashes;
  for (const std::uint64_t hash : file.blocks) hashes += hex(hash);
  return {{"name", file.name}, {"bytes", file.bytes}, {"blocks", hashes}, {"pieces", std::move(pieces)}};
}

Result<std::vector<std::uint64_t>> parse_blocks(std::string_view digits) {
  std::vector<std::uint64_t> hashes;
  for (std::size_t at = 0; at < digits.size(); at += hash_digits) {
    const auto hash = parse_hex(digits.substr(at, hash_digits));
    if (!hash) return invalid("'blocks' are no hashes");
    hashes.push_back(*hash);
  }
  return hashes;
}

Result<FileRecord> parse_file(const json::Value& object) {
  if (object.object() == nullptr) return invalid("the record of a file is no JSON object");
  Fields fields(object);
  FileRecord file{.name = fields.text("name"), .bytes = fields.count("bytes")};
  auto blocks = parse_blocks(fields.text("blocks"));
  const json::Array& pieces = fields.list("pieces");
  if (!fields.problem().empty()) return invalid(fields.problem()).within("the record of a file");
  if (!blocks) return std::move(blocks).error();
  file.blocks = std::move(*blocks);
  for (const json::Value& value : pieces) {
    auto piece = value.object() != nullptr ? parse_piece(value) : invalid("a piece is no JSON object");
    if (!piece) return std::move(piece).error();
    file.pieces.push_back(std::move(*piece));
  }
  if (auto fine = check(file); !fine) return std::move(fine).error();
  return file;
}

json::Object to_json(const State& state) {
  return {{"step", state.step},
          {"attempt", state.attempt},
          {"mesh", state.mesh},
          {"samples_seen", state.samples_seen},
          {"tokens_seen", state.tokens_seen},
          {"seed", state.seed},
          {"loss", state.loss},  // null if it is not known
          {"data_fingerprint", state.data_fingerprint},
          {"recipe", state.recipe},
          {"model_config", state.model_config}};
}

Result<State> parse_state(const json::Value& object) {
  Fields fields(object);
  State state{.step = fields.whole("step"),
              .attempt = fields.whole("attempt"),
              .mesh = fields.text("mesh"),
              .samples_seen = fields.count("samples_seen"),
              .tokens_seen = fields.count("tokens_seen"),
              .seed = fields.count("seed"),
              .loss = fields.number_or_nan("loss"),
              .data_fingerprint = fields.text("data_fingerprint"),
              .recipe = fields.text("recipe"),
              .model_config = fields.text("model_config")};
  if (!fields.problem().empty()) return invalid(fields.problem()).within("the state");
  return state;
}

// What stands between the two frames of the text, if its hash is the one behind it.
std::optional<std::string_view> verified_content(std::string_view text) {
  const std::size_t tail = before_hash.size() + hash_digits + behind_hash.size();
  if (text.size() < before_content.size() + tail || !text.starts_with(before_content)) return std::nullopt;
  const std::string_view content =
      text.substr(before_content.size(), text.size() - before_content.size() - tail);
  const std::string wanted = std::string(before_hash) + hash_of(content) + std::string(behind_hash);
  if (!text.ends_with(wanted)) return std::nullopt;
  return content;
}

}  // namespace

std::string FileRecord::json() const { return json::write(to_json(*this)); }

Result<FileRecord> FileRecord::parse(std::string_view text) {
  const auto value = json::parse(text);
  return parse_file(value ? *value : nothing);
}

std::string encode(const Manifest& manifest) {
  // One file a line, so that a person can read it with a pager.
  std::string content = "{\"format\":" + json::write(format_name) +
                        ",\n\"state\":" + json::write(to_json(manifest.state)) + ",\n\"files\":[";
  for (std::size_t at = 0; at < manifest.files.size(); ++at) {
    content += (at == 0 ? "\n" : ",\n") + manifest.files[at].json();
  }
  content += "]}";
  return std::string(before_content) + content + std::string(before_hash) + hash_of(content) +
         std::string(behind_hash);
}

Result<Manifest> decode(std::string_view text) {
  const auto content = verified_content(text);
  if (!content) return failed("the manifest is damaged: its content does not fit its hash");
  const auto object = json::parse(*content);
  if (!object || object->object() == nullptr) return failed("the manifest is no JSON object");
  Fields fields(*object);
  if (fields.text("format") != format_name) return failed("the manifest is of another format");
  auto state = parse_state(fields.object("state"));
  if (!state) return std::move(state).error().within("the manifest");
  Manifest manifest{.state = std::move(*state)};
  for (const json::Value& value : fields.list("files")) {
    auto file = parse_file(value);
    if (!file) return std::move(file).error().within("the manifest");
    manifest.files.push_back(std::move(*file));
  }
  if (!fields.problem().empty()) return failed(fields.problem()).within("the manifest");
  return manifest;
}

Result<Manifest> load_manifest(const std::string& checkpoint) {
  const auto text = files::read_file(checkpoint + "/" + manifest_name, manifest_bytes_max);
  if (!text) return text.error();
  if (!*text) return damaged("it has no manifest.json").within(checkpoint);
  auto manifest = decode(**text);
  if (!manifest) return std::move(manifest).error().as(ErrorCode::damaged).within(checkpoint);
  return manifest;
}

Result<> save_manifest(const std::string& checkpoint, const Manifest& manifest, std::size_t bytes_max) {
  const std::string text = encode(manifest);
  if (text.size() > bytes_max) {
    return invalid("the manifest has " + format_bytes(Bytes(static_cast<std::int64_t>(text.size()))) +
                   ", and readers take " + format_bytes(Bytes(static_cast<std::int64_t>(bytes_max))))
        .within(checkpoint)
        .remedy("fewer ranks save in fewer pieces");
  }
  return replace_durably(checkpoint + "/" + manifest_name, text);
}

}  // namespace tutti::checkpoint
