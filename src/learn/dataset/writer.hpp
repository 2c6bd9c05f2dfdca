// Writes a dataset. It grows in a folder beside its place, DIR.part-PID, and moves there when it is whole;
// what is not finished is removed with the Writer, or by the next one if the process was killed. One thread
// at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/result.hpp"
#include "base/units.hpp"
#include "learn/dataset/format.hpp"

namespace tutti::dataset {

struct WriterOptions {
  std::string folder;
  std::string tokenizer_json;
  std::int64_t vocabulary = 0;
  std::uint32_t end_of_text = 0;
  Bytes shard_bytes_max = mib(256);  // of tokens
  bool replace = false;              // a dataset that is there already; nothing else is ever removed
};

class Writer {
 public:
  static Result<Writer> create(WriterOptions options);
  Writer(Writer&&) noexcept;
  Writer& operator=(Writer&&) noexcept;
  ~Writer();

  // A document in one piece, or in several that end_document() ends. Each token is below the vocabulary.
  Result<> add_document(std::span<const std::uint32_t> tokens);
  Result<> append(std::span<const std::uint32_t> tokens);
  Result<> end_document();

  // Puts the dataset in its place, and tells what is in it. Nothing can be added afterwards.
  Result<Description> finish();

 private:
  struct Parts;
  explicit Writer(std::unique_ptr<Parts> parts);

  std::unique_ptr<Parts> parts_;
};

}  // namespace tutti::dataset
