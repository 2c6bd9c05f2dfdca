#include "control/wire/json.hpp"

#include <charconv>
#include <cmath>
#include <set>

#include <google/protobuf/util/json_util.h>

#include "base/check.hpp"
#include "base/json/parse.hpp"
#include "base/text.hpp"

namespace tutti::wire {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// Writes a message by its schema. Protobuf's own printer turns it into bytes first and the schema into
// messages, which takes five times as long: pages and events are made on the loop that owns the state.
class Printer {
 public:
  explicit Printer(std::string& text) : text_(text) {}

  void message(const Message& message) {
    const auto* schema = message.GetDescriptor();
    const Reflection& content = *message.GetReflection();
    const char* separator = "{";
    for (int at = 0; at < schema->field_count(); ++at) {
      const FieldDescriptor& field = *schema->field(at);
      // What may be absent is told only if it is there; the rest always, so that readers find it.
      if (!field.is_repeated() && field.has_presence() && !content.HasField(message, &field)) continue;
      text_ += separator;
      separator = ",";
      string(field.name());
      text_ += ':';
      if (field.is_repeated()) {
        list(message, content, field);
      } else {
        value(message, content, field);
      }
    }
    text_ += separator[0] == '{' ? "{}" : "}";
  }

 private:
  void list(const Message& message, const Reflection& content, const FieldDescriptor& field) {
    text_ += '[';
    for (int at = 0; at < content.FieldSize(message, &field); ++at) {
      if (at > 0) text_ += ',';
      element(message, content, field, at);
    }
    text_ += ']';
  }

  void value(const Message& message, const Reflection& content, const FieldDescriptor& field) {
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        return number(content.GetInt32(message, &field));
      case FieldDescriptor::CPPTYPE_UINT32:
        return number(content.GetUInt32(message, &field));
      case FieldDescriptor::CPPTYPE_INT64:
        return large_number(content.GetInt64(message, &field));
      case FieldDescriptor::CPPTYPE_UINT64:
        return large_number(content.GetUInt64(message, &field));
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return fraction(content.GetDouble(message, &field));
      case FieldDescriptor::CPPTYPE_BOOL:
        return boolean(content.GetBool(message, &field));
      case FieldDescriptor::CPPTYPE_STRING:
        return string(content.GetStringReference(message, &field, &scratch_), field);
      case FieldDescriptor::CPPTYPE_MESSAGE:
        return this->message(content.GetMessage(message, &field));
      case FieldDescriptor::CPPTYPE_FLOAT:
      case FieldDescriptor::CPPTYPE_ENUM:
        break;
    }
    TUTTI_CHECK(false, "the schema has a kind of field that is not printed");
  }

  void element(const Message& message, const Reflection& content, const FieldDescriptor& field, int at) {
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        return number(content.GetRepeatedInt32(message, &field, at));
      case FieldDescriptor::CPPTYPE_UINT32:
        return number(content.GetRepeatedUInt32(message, &field, at));
      case FieldDescriptor::CPPTYPE_INT64:
        return large_number(content.GetRepeatedInt64(message, &field, at));
      case FieldDescriptor::CPPTYPE_UINT64:
        return large_number(content.GetRepeatedUInt64(message, &field, at));
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return fraction(content.GetRepeatedDouble(message, &field, at));
      case FieldDescriptor::CPPTYPE_BOOL:
        return boolean(content.GetRepeatedBool(message, &field, at));
      case FieldDescriptor::CPPTYPE_STRING:
        return string(content.GetRepeatedStringReference(message, &field, at, &scratch_), field);
      case FieldDescriptor::CPPTYPE_MESSAGE:
        return this->message(content.GetRepeatedMessage(message, &field, at));
      case FieldDescriptor::CPPTYPE_FLOAT:
      case FieldDescriptor::CPPTYPE_ENUM:
        break;
    }
    TUTTI_CHECK(false, "the schema has a kind of field that is not printed");
  }

  template <class Number>
  void number(Number value) {
    char digits[32];
    const auto end = std::to_chars(digits, digits + sizeof digits, value).ptr;
    text_.append(digits, end);
  }
  // A number of JSON has 53 bits for many readers.
  template <class Number>
  void large_number(Number value) {
    text_ += '"';
    number(value);
    text_ += '"';
  }
  void fraction(double value) {
    if (std::isfinite(value)) return number(value);
    text_ += std::isnan(value) ? "\"NaN\"" : value > 0 ? "\"Infinity\"" : "\"-Infinity\"";
  }
  void boolean(bool value) { text_ += value ? "true" : "false"; }

  void string(const std::string& value, const FieldDescriptor& field) {
    TUTTI_CHECK(field.type() == FieldDescriptor::TYPE_STRING, "bytes are for machines and not printed");
    string(value);
  }
  void string(const std::string& value) {
    text_ += '"';
    bool ascii = true;
    for (const char letter : value) ascii = ascii && static_cast<unsigned char>(letter) < 0x80;
    if (ascii) {
      escape(value);
    } else {
      escape(valid_utf8(value));
    }
    text_ += '"';
  }
  void escape(const std::string& value) {
    constexpr std::string_view digits = "0123456789abcdef";
    for (const char letter : value) {
      const auto byte = static_cast<unsigned char>(letter);
      if (letter == '"' || letter == '\\') {
        text_ += '\\';
        text_ += letter;
      } else if (letter == '\n') {
        text_ += "\\n";
      } else if (byte < 0x20 || byte == 0x7f || letter == '<' || letter == '>') {
        // The latter two so that no page that shows it takes it for a tag.
        text_ += "\\u00";
        text_ += digits[byte >> 4];
        text_ += digits[byte & 15];
      } else {
        text_ += letter;
      }
    }
  }

  std::string& text_;
  std::string scratch_;
};

// The keys of all booleans in such a message and in those inside it.
void find_booleans(const google::protobuf::Descriptor& schema, std::set<std::string>& keys,
                   std::set<const google::protobuf::Descriptor*>& seen) {
  if (!seen.insert(&schema).second) return;
  for (int at = 0; at < schema.field_count(); ++at) {
    const FieldDescriptor& field = *schema.field(at);
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_BOOL) keys.insert({field.name(), field.json_name()});
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE)
      find_booleans(*field.message_type(), keys, seen);
  }
}

}  // namespace

std::string print(const Message& message) {
  std::string text;
  Printer(text).message(message);
  return text;
}

Result<> parse(std::string_view text, Message& message) {
  // Protobuf would take the one or the other of two values of a key, or both, and any word for a boolean that
  // looks like one; and of millions of values, which no request needs, it makes messages first.
  std::set<std::string> booleans;
  std::set<const google::protobuf::Descriptor*> seen;
  find_booleans(*message.GetDescriptor(), booleans, seen);
  if (const auto strict = json::scan(text, body_values_max, booleans); !strict)
    return invalid("the body is not the JSON that is expected here: " + strict.error().text());
  const auto parsed = google::protobuf::util::JsonStringToMessage({text.data(), text.size()}, &message);
  if (parsed.ok()) return {};
  return invalid("the body is not the JSON that is expected here: " +
                 std::string(parsed.message()).substr(0, 200));
}

std::string beside(std::string first, const std::string& second) {
  first.back() = ',';
  return first + second.substr(1);
}

}  // namespace tutti::wire
