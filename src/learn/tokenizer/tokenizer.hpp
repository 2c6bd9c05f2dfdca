// Text to tokens and back: byte-level BPE as the tokenizer.json files of Hugging Face define it. Any bytes go
// in, bad UTF-8 too, and the same bytes come out unless the file itself changes them (NFC, a blank in front).
// A value: cheap to copy, immutable, any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace tutti::tokenizer {

class Tokenizer {
 public:
  // A token for each byte, and <|endoftext|> as number 256.
  static Tokenizer bytes();
  // A tokenizer.json. Refuses a file that asks for more than is done here, and names the field.
  static Result<Tokenizer> parse(std::string_view tokenizer_json);

  // The tokens that Hugging Face's encode() gives without its special tokens around them.
  std::vector<std::uint32_t> encode(std::string_view text) const;
  // Ids without a token are passed over.
  std::string decode(std::span<const std::uint32_t> tokens) const;

  // The first place at or after `from` where the text can be cut and both sides be encoded on their own, with
  // the same tokens; the end of the text if there is none. For texts too long to be encoded at once.
  std::size_t next_cut(std::string_view text, std::size_t from) const;

  std::int64_t vocabulary() const;  // the largest id + 1
  // <|endoftext|>, or what other families call it.
  std::optional<std::uint32_t> end_of_text() const;
  // The tokenizer.json it was made from.
  const std::string& json() const;

 private:
  struct Parts;
  class Encoder;
  explicit Tokenizer(std::shared_ptr<const Parts> parts) : parts_(std::move(parts)) {}

  std::shared_ptr<const Parts> parts_;
};

}  // namespace tutti::tokenizer
