// The fields of a JSON object from outside: each is of the kind that is known here, or the first one that is
// not is told by name. One thread at a time.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "base/json/value.hpp"

namespace tutti::tokenizer {

// For a message: quotes around it, and long texts cut.
std::string in_quotes(std::string_view text);
std::string shortened(std::string_view text);

// All that follows a mistake reads as if it were not there; the first one is told.
class Fields {
 public:
  // `path` ends with a dot unless it is empty.
  Fields(const json::Value& object, std::string path, std::string& problem);

  // Missing or null.
  bool lacks(const char* key) const { return (*this)[key].is_null(); }
  const json::Value& operator[](const char* key) const;

  bool toggle(const char* key, bool otherwise);
  std::string text(const char* key);
  std::optional<std::uint32_t> id(const char* key) { return id_of((*this)[key], path_ + key); }
  std::optional<std::uint32_t> id_of(const json::Value& value, const std::string& where);

  // One of these values; missing is null.
  void only(const char* key, std::initializer_list<json::Value> values);
  // What nobody here knows might change the tokens.
  void nothing_but(std::initializer_list<std::string_view> keys);

  void refuse(const std::string& where, const json::Value& value, const std::string& known);
  void refuse_own(const char* key, const std::string& known) { refuse(path_ + key, (*this)[key], known); }
  void tell(std::string problem);
  // The elements of a list of at most so many; none if it is no list.
  const json::Array& list(const char* key, std::size_t most);
  Fields inner(const char* key) { return inner(key, (*this)[key]); }
  // One of a list.
  Fields inner(const char* key, const json::Value& element) { return {element, path_ + key + ".", problem_}; }
  const std::string& path() const { return path_; }
  bool fine() const { return problem_.empty(); }

 private:
  const json::Value& object_;
  std::string path_;
  std::string& problem_;
};

}  // namespace tutti::tokenizer
