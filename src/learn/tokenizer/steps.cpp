#include "learn/tokenizer/steps.hpp"

#include <algorithm>

namespace tutti::tokenizer {
namespace {

// ---- tokens to text

// Replace ▁ by a blank, ByteFallback, Fuse, and perhaps Strip of one blank: SentencePiece's way.
void read_decoder_steps(Fields& sequence, Definition& definition) {
  sequence.nothing_but({"type", "decoders"});
  definition.symbols = Symbols::code_points;
  const json::Array& steps = sequence.list("decoders", steps_max);
  if (!sequence.fine()) return;
  if (steps.size() != 3 && steps.size() != 4)
    return sequence.tell("'decoder.decoders' has " + std::to_string(steps.size()) +
                         " steps, and only Replace, ByteFallback, Fuse and Strip are known here");
  Fields replace = sequence.inner("decoders", steps[0]);
  replace.nothing_but({"type", "pattern", "content"});
  replace.only("type", {"Replace"});
  replace.only("content", {" "});
  Fields pattern = replace.inner("pattern");
  pattern.nothing_but({"String"});
  pattern.only("String", {blank_letter});
  for (const auto& [at, type] : {std::pair(1U, "ByteFallback"), std::pair(2U, "Fuse")}) {
    Fields step = sequence.inner("decoders", steps[at]);
    step.nothing_but({"type"});
    step.only("type", {type});
  }
  if (steps.size() == 3) return;
  Fields strip = sequence.inner("decoders", steps[3]);
  strip.nothing_but({"type", "content", "start", "stop"});
  strip.only("type", {"Strip"});
  strip.only("content", {" "});
  strip.only("start", {1});
  strip.only("stop", {0});
  definition.strips_blank = true;
}

void read_decoder(Fields& document, Definition& definition) {
  Fields decoder = document.inner("decoder");
  if (!decoder.fine()) return;
  if (decoder["type"] == "Sequence") return read_decoder_steps(decoder, definition);
  decoder.only("type", {"ByteLevel", "Sequence"});
}

// ---- text before the model: its form

// What SentencePiece's form of a text needs is there once blanks are replaced by ▁, by whichever step.
void read_normalizer_step(Fields step, Definition& definition, bool& replaces_blanks) {
  if (!step.fine()) return;
  if (step["type"] == "NFC") {
    step.nothing_but({"type"});
    definition.nfc = true;
  } else if (step["type"] == "Prepend" && definition.symbols == Symbols::code_points) {
    step.nothing_but({"type", "prepend"});
    step.only("prepend", {blank_letter});
    definition.prefix = Prefix::always;
  } else if (step["type"] == "Replace" && definition.symbols == Symbols::code_points) {
    step.nothing_but({"type", "pattern", "content"});
    step.only("content", {blank_letter});
    Fields pattern = step.inner("pattern");
    pattern.nothing_but({"String"});
    pattern.only("String", {" "});
    replaces_blanks = true;
  } else if (definition.symbols == Symbols::code_points) {
    step.only("type", {"NFC", "Prepend", "Replace"});
  } else {
    step.only("type", {"NFC"});
  }
}

void read_normalizer(Fields& document, Definition& definition, bool& replaces_blanks) {
  if (document.lacks("normalizer")) return;
  Fields normalizer = document.inner("normalizer");
  if (normalizer["type"] != "Sequence") return read_normalizer_step(normalizer, definition, replaces_blanks);
  normalizer.nothing_but({"type", "normalizers"});
  for (const json::Value& step : normalizer.list("normalizers", steps_max))
    read_normalizer_step(normalizer.inner("normalizers", step), definition, replaces_blanks);
}

// ---- text before the model: its words

void check_byte_level(Fields& step) {
  step.nothing_but({"type", "add_prefix_space", "trim_offsets", "use_regex"});
  step.only("type", {"ByteLevel"});
}

// All of the text is matched by the known patterns, so that what matches and what lies between are the same.
Pattern read_split(Fields step) {
  step.nothing_but({"type", "pattern", "behavior", "invert"});
  step.only("type", {"Split"});
  const bool invert = step.toggle("invert", false);
  step.only("behavior", {invert ? "Removed" : "Isolated"});
  Fields pattern = step.inner("pattern");
  pattern.nothing_but({"Regex"});
  const std::string expression = pattern.text("Regex");
  const auto known = find_pattern(expression);
  if (!known) pattern.refuse_own("Regex", "that of GPT-2, GPT-4, Llama 3 or Qwen2");
  return known.value_or(Pattern::whole);
}

// Split by an expression, then bytes to letters.
void read_split_and_bytes(Fields sequence, Definition& definition) {
  sequence.nothing_but({"type", "pretokenizers"});
  const json::Value& steps = sequence["pretokenizers"];
  if (steps.list() == nullptr || steps.list()->size() != 2)
    return sequence.refuse_own("pretokenizers", "a list of Split and ByteLevel");
  definition.pattern = read_split(sequence.inner("pretokenizers", steps.list()->front()));
  Fields byte_level = sequence.inner("pretokenizers", steps.list()->back());
  check_byte_level(byte_level);
  byte_level.only("add_prefix_space", {false});
  byte_level.only("use_regex", {false});
}

// Blanks become ▁; words, if there are any, begin with it.
void read_metaspace(Fields& step, Definition& definition) {
  step.nothing_but({"type", "replacement", "str_rep", "add_prefix_space", "prepend_scheme", "split"});
  step.only("type", {"Metaspace"});
  step.only("replacement", {blank_letter});
  step.only("str_rep", {nullptr, blank_letter});
  step.only("prepend_scheme", {nullptr, "always", "first", "never"});
  if (definition.prefix != Prefix::none)
    return step.tell("'normalizer' and 'pre_tokenizer' both put a blank before the text");
  const bool prefixed = step.toggle("add_prefix_space", true);  // files of old have no scheme
  if (step["prepend_scheme"] == "first") {
    definition.prefix = Prefix::first_unless_blank;
  } else if (step["prepend_scheme"] != "never" && prefixed) {
    definition.prefix = Prefix::unless_blank;
  }
  definition.pattern = step.toggle("split", true) ? Pattern::blank : Pattern::whole;
}

void read_pre_tokenizer(Fields& document, Definition& definition, bool& replaces_blanks) {
  if (definition.symbols == Symbols::code_points) {
    definition.pattern = Pattern::whole;
    if (document.lacks("pre_tokenizer")) return;
    Fields step = document.inner("pre_tokenizer");
    replaces_blanks = true;
    return read_metaspace(step, definition);
  }
  Fields step = document.inner("pre_tokenizer");
  if (!step.fine()) return;
  if (step["type"] == "Sequence") return read_split_and_bytes(step, definition);
  check_byte_level(step);
  if (step.toggle("add_prefix_space", true)) definition.prefix = Prefix::unless_blank;
  definition.pattern = step.toggle("use_regex", true) ? Pattern::gpt2 : Pattern::whole;
}

// ---- tokens around a text

void append_ids(Fields& specials, const std::string& name, const Definition& definition,
                std::vector<std::uint32_t>& out) {
  Fields special = specials.inner(name.c_str());
  special.nothing_but({"id", "ids", "tokens"});
  for (const json::Value& each : special.list("ids", frame_tokens_max)) {
    const auto id = special.id_of(each, special.path() + "ids");
    if (!id) return;
    if (*id >= definition.tokens.size() || definition.tokens[*id].bytes.empty())
      return special.tell("'" + special.path() + "ids' names the token " + std::to_string(*id) +
                          ", which there is none of");
    if (out.size() == frame_tokens_max)
      return special.tell("'post_processor' puts more than " + std::to_string(frame_tokens_max) +
                          " tokens around a text");
    out.push_back(*id);
  }
}

// How a single text is framed; pairs of texts are for models of another kind.
void read_template(Fields& processor, Definition& definition) {
  processor.nothing_but({"type", "single", "pair", "special_tokens"});
  Fields specials = processor.inner("special_tokens");
  bool seen = false;
  for (const json::Value& each : processor.list("single", 2 * frame_tokens_max + 1)) {
    Fields piece = processor.inner("single", each);
    piece.nothing_but({"SpecialToken", "Sequence"});
    if (!piece.fine()) return;
    if (piece.lacks("SpecialToken")) {
      Fields sequence = piece.inner("Sequence");
      sequence.only("id", {"A"});
      if (seen) return piece.tell("'post_processor.single' has the text twice");
      seen = true;
    } else {
      const std::string name = piece.inner("SpecialToken").text("id");
      append_ids(specials, name, definition, seen ? definition.after : definition.before);
    }
  }
  if (!seen) processor.tell("'post_processor.single' has no place for the text");
}

void read_processor(Fields processor, Definition& definition) {
  if (!processor.fine()) return;
  if (processor["type"] == "ByteLevel") return;  // it moves the places of tokens, which nobody asks for here
  processor.only("type", {"TemplateProcessing", "ByteLevel", "Sequence"});
  if (!definition.before.empty() || !definition.after.empty())
    return processor.tell("'post_processor' frames the text twice");
  if (processor.fine()) read_template(processor, definition);
}

}  // namespace

void read_steps(Fields& document, Definition& definition) {
  bool replaces_blanks = false;
  read_decoder(document, definition);
  read_normalizer(document, definition, replaces_blanks);
  read_pre_tokenizer(document, definition, replaces_blanks);
  if (definition.symbols == Symbols::code_points && !replaces_blanks)
    document.tell(
        "neither 'normalizer' nor 'pre_tokenizer' replaces blanks by ▁, and 'decoder' does the reverse");
}

void read_post_processor(Fields& document, Definition& definition) {
  if (document.lacks("post_processor")) return;
  Fields processor = document.inner("post_processor");
  if (processor["type"] != "Sequence") return read_processor(processor, definition);
  processor.nothing_but({"type", "processors"});
  for (const json::Value& each : processor.list("processors", steps_max))
    read_processor(processor.inner("processors", each), definition);
}

}  // namespace tutti::tokenizer
