// What the files beside a tokenizer.json say about its tokens: which begin and end a text, at which an answer
// stops, what is put around a text, how a conversation is written. Pure functions, any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "learn/tokenizer/tokenizer.hpp"

namespace tutti::tokenizer {

constexpr std::size_t settings_bytes_max = std::size_t{16} << 20U;  // of each file
constexpr std::size_t chat_template_bytes_max = std::size_t{1} << 20U;
constexpr std::size_t chat_templates_max = 32;
constexpr std::size_t stops_max = 64;

// The text of each file; empty if there is none.
struct SettingsFiles {
  std::string_view tokenizer_config;    // tokenizer_config.json
  std::string_view special_tokens_map;  // special_tokens_map.json
  std::string_view generation_config;   // generation_config.json
  std::string_view config;              // config.json
  std::string_view chat_template;       // chat_template.jinja
};

struct NamedTemplate {
  std::string name;  // "default" for the only one
  std::string text;
};

struct TokenSettings {
  std::optional<std::uint32_t> begin;
  std::optional<std::uint32_t> end;
  std::string begin_text;  // as templates write it; empty if there is none
  std::string end_text;
  std::vector<std::uint32_t> stops;  // an answer is over at each of them; sorted
  Tokenizer::Frame frame;            // for Tokenizer::with_frame()
  std::vector<NamedTemplate> chat_templates;
};

// The one for conversations with tools or without; null if the model has none.
const NamedTemplate* find_template(const TokenSettings& settings, bool with_tools);

// Refuses what contradicts the tokenizer, and names the file and the field.
Result<TokenSettings> read_settings(const SettingsFiles& files, const Tokenizer& tokenizer);

}  // namespace tutti::tokenizer
