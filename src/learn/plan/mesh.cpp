#include "learn/plan/mesh.hpp"

#include <charconv>
#include <cstdint>

#include "base/check.hpp"

namespace tutti::plan {
namespace {

bool is_separator(char c) { return c == ' ' || c == ',' || c == 'x' || c == '*'; }

// Takes one "dp2" off the front of the text.
Result<> take_factor(std::string_view& text, Mesh& mesh, std::string& seen) {
  const std::string_view kind = text.substr(0, 2);
  int* const target = kind == "dp"   ? &mesh.data
                      : kind == "tp" ? &mesh.tensor
                      : kind == "pp" ? &mesh.pipeline
                                     : nullptr;
  int value = 0;
  const std::string_view digits = text.size() > 2 ? text.substr(2) : "";
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (target == nullptr || error != std::errc{} || value < 1 || value > ranks_max) {
    return invalid("'" + std::string(text) + "' is no part of a mesh").remedy("such as dp2 tp2 pp2");
  }
  if (seen.find(kind) != std::string::npos) return invalid(std::string(kind) + " is given twice");
  seen += kind;
  *target = value;
  text.remove_prefix(2 + static_cast<std::size_t>(end - digits.data()));
  return {};
}

}  // namespace

std::string Mesh::text() const {
  std::string words;
  const auto add = [&](const char* name, int value) {
    if (value == 1) return;
    if (!words.empty()) words += ' ';
    words += name + std::to_string(value);
  };
  add("dp", data);
  add("tp", tensor);
  add("pp", pipeline);
  return words.empty() ? "1" : words;
}

Result<Mesh> parse_mesh(std::string_view text) {
  constexpr std::string_view times = "×";
  Mesh mesh;
  if (text == "1") return mesh;
  std::string seen;
  const std::string whole(text);
  while (!text.empty()) {
    if (is_separator(text.front())) {
      text.remove_prefix(1);
    } else if (text.starts_with(times)) {
      text.remove_prefix(times.size());
    } else if (auto taken = take_factor(text, mesh, seen); !taken) {
      return std::move(taken).error();
    }
  }
  if (seen.empty()) return invalid("'" + whole + "' is no mesh").remedy("such as dp2 tp2 pp2, or auto");
  // Each factor is at most 2^16: the product fits into 64 bits.
  const auto ranks = std::int64_t{mesh.data} * mesh.tensor * mesh.pipeline;
  if (ranks > ranks_max) return invalid("a mesh has " + std::to_string(ranks_max) + " ranks at most");
  return mesh;
}

Place place_of(const Mesh& mesh, int rank) {
  TUTTI_CHECK(rank >= 0 && rank < mesh.size());
  return {.replica = rank / mesh.tensor % mesh.data,
          .slice = rank % mesh.tensor,
          .stage = rank / (mesh.tensor * mesh.data)};
}

int rank_of(const Mesh& mesh, const Place& place) {
  return (place.stage * mesh.data + place.replica) * mesh.tensor + place.slice;
}

Span span_of(int layers, int stages, int parts, int stage, int part) {
  const int pieces = stages * parts;
  const int piece = part * stages + stage;
  TUTTI_CHECK(piece >= 0 && piece < pieces);
  // The first pieces take one more where the layers do not divide.
  const int each = layers / pieces;
  const int more = layers % pieces;
  return {.first_layer = piece * each + (piece < more ? piece : more),
          .layers = each + (piece < more ? 1 : 0),
          .has_embedding = piece == 0,
          .has_head = piece == pieces - 1};
}

}  // namespace tutti::plan
