#include "control/wire/json.hpp"

#include <google/protobuf/util/json_util.h>

#include "base/check.hpp"
#include "base/json/parse.hpp"

namespace tutti::wire {

std::string print(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string text;
  const auto printed = google::protobuf::util::MessageToJsonString(message, &text, options);
  TUTTI_CHECK(printed.ok());
  return text;
}

Result<> parse(std::string_view text, google::protobuf::Message& message) {
  // Protobuf would take the one or the other of two values of a key, or both.
  if (const auto strict = json::parse(text); !strict)
    return invalid("the body is not the JSON that is expected here: " + strict.error().text());
  const auto parsed = google::protobuf::util::JsonStringToMessage({text.data(), text.size()}, &message);
  if (parsed.ok()) return {};
  return invalid("the body is not the JSON that is expected here: " +
                 std::string(parsed.message()).substr(0, 200));
}

}  // namespace tutti::wire
