// The order in which a JSON text has the keys of its objects, which its values do not keep: a model writes
// properties in the order that the author of a schema has thought of. Values, any thread.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/json/value.hpp"

namespace tutti::serve {

// A key as a step of a path: "a/b" is "a~1b".
std::string escaped(std::string_view key);
std::string unescaped(std::string_view step);

class KeyOrder {
 public:
  // Of a text that json::parse takes. What has a longer path is not looked at: a long key with thousands of
  // objects inside it would be remembered thousands of times.
  KeyOrder(std::string_view text, std::size_t path_bytes_max);

  // The keys of the object at this path ("/properties/a"), in the order of the text.
  std::vector<std::string> keys(const std::string& path, const json::Object& object) const;

 private:
  std::map<std::string, std::vector<std::string>> keys_;
};

}  // namespace tutti::serve
