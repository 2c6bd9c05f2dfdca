// Text to tokens and back: BPE as the tokenizer.json files of Hugging Face define it. Any bytes go in, bad
// UTF-8 too, and the same bytes come out unless the file itself changes them (NFC, a blank in front, ▁ for a
// blank). A value: cheap to copy, immutable, any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"

namespace tutti::tokenizer {

struct EncodeOptions {
  // <|im_end|> and its like become tokens where the text writes them. What people send is encoded without:
  // there they are letters.
  bool special = true;
  // The tokens that belong around a text, such as one for its beginning, are put there.
  bool frame = false;
  // With `special`: what guarded() has guarded stays letters, and the guards are taken out.
  bool guards = false;
  // Nobody waits for it any more: it ends early, with tokens that mean nothing.
  std::stop_token abandoned = {};
};

struct DecodeOptions {
  bool special = true;     // special tokens are written, too
  bool continues = false;  // there is text before it: the blank that some families put before a text is kept
};

// A code point that stands for nothing, so that no text loses anything by its absence.
constexpr std::string_view guard_letter = "\xEF\xB7\x90";  // U+FDD0

class Tokenizer {
 public:
  // A token for each byte, and <|endoftext|> as number 256.
  static Tokenizer bytes();
  // A tokenizer.json. Refuses a file that asks for more than is done here, and names the field.
  static Result<Tokenizer> parse(std::string_view tokenizer_json);

  // The tokens that Hugging Face's encode() gives, without `frame` as with add_special_tokens=False.
  std::vector<std::uint32_t> encode(std::string_view text, const EncodeOptions& options = {}) const;
  // Ids without a token are passed over.
  std::string decode(std::span<const std::uint32_t> tokens, const DecodeOptions& options = {}) const;

  // A text from outside that is to stand between special tokens in one larger text: where it writes one
  // itself, a guard is put in, so that encode() with `guards` takes it for letters.
  std::string guarded(std::string_view text) const;

  // What a token stands for inside a text, with a blank where the family writes ▁; empty if there is none.
  std::string_view token_bytes(std::uint32_t token) const;
  bool is_special(std::uint32_t token) const;
  // The token that is written so: an added one, or one of the vocabulary that stands for these bytes.
  std::optional<std::uint32_t> find(std::string_view content) const;

  // What `frame` puts around a text.
  struct Frame {
    std::vector<std::uint32_t> before;
    std::vector<std::uint32_t> after;

    friend bool operator==(const Frame&, const Frame&) = default;
  };
  const Frame& frame() const { return frame_; }
  // The same with another frame.
  Tokenizer with_frame(Frame frame) const;

  // Whether a text that is decoded loses one blank at its beginning.
  bool strips_blank() const;

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
  Tokenizer(std::shared_ptr<const Parts> parts, Frame frame)
      : parts_(std::move(parts)), frame_(std::move(frame)) {}

  std::shared_ptr<const Parts> parts_;
  Frame frame_;
};

}  // namespace tutti::tokenizer
