#include "control/wire/json.hpp"

#include <limits>

#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "control/wire/submit_json.hpp"
#include "proto/tutti.pb.h"

namespace tutti::wire {
namespace {

using nlohmann::json;

// What protobuf's own printer makes of it.
json expected(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string text;
  EXPECT_TRUE(google::protobuf::util::MessageToJsonString(message, &text, options).ok());
  return json::parse(text);
}

// Every field of a message and of those in it, with odd values; lists have two elements.
void fill(google::protobuf::Message& message, int depth = 0) {
  using google::protobuf::FieldDescriptor;
  const auto* schema = message.GetDescriptor();
  const auto* content = message.GetReflection();
  for (int at = 0; at < schema->field_count(); ++at) {
    const FieldDescriptor* field = schema->field(at);
    for (int time = 0; time < (field->is_repeated() ? 2 : 1); ++time) {
      const bool list = field->is_repeated();
      switch (field->cpp_type()) {
        case FieldDescriptor::CPPTYPE_INT32:
          list ? content->AddInt32(&message, field, -7) : content->SetInt32(&message, field, -7);
          break;
        case FieldDescriptor::CPPTYPE_UINT32:
          list ? content->AddUInt32(&message, field, 7) : content->SetUInt32(&message, field, 7);
          break;
        case FieldDescriptor::CPPTYPE_INT64:
          list ? content->AddInt64(&message, field, std::numeric_limits<std::int64_t>::min())
               : content->SetInt64(&message, field, std::numeric_limits<std::int64_t>::min());
          break;
        case FieldDescriptor::CPPTYPE_UINT64:
          list ? content->AddUInt64(&message, field, std::numeric_limits<std::uint64_t>::max())
               : content->SetUInt64(&message, field, std::numeric_limits<std::uint64_t>::max());
          break;
        case FieldDescriptor::CPPTYPE_DOUBLE:
          list ? content->AddDouble(&message, field, 0.1) : content->SetDouble(&message, field, 1e300 / 3);
          break;
        case FieldDescriptor::CPPTYPE_BOOL:
          list ? content->AddBool(&message, field, true) : content->SetBool(&message, field, true);
          break;
        case FieldDescriptor::CPPTYPE_STRING: {
          const std::string odd = "a\"b\\c\n\t\x01</b>\x7f \xc3\xa9 \xf0\x9f\x98\x80";
          list ? content->AddString(&message, field, odd) : content->SetString(&message, field, odd);
          break;
        }
        case FieldDescriptor::CPPTYPE_MESSAGE:
          if (depth < 4)
            fill(list ? *content->AddMessage(&message, field) : *content->MutableMessage(&message, field),
                 depth + 1);
          break;
        default:
          FAIL() << field->full_name() << " is of a kind that is not printed";
      }
    }
  }
}

template <class Message>
void expect_same() {
  Message empty;
  EXPECT_EQ(json::parse(print(empty)), expected(empty)) << Message::descriptor()->name();
  Message full;
  fill(full);
  EXPECT_EQ(json::parse(print(full)), expected(full)) << Message::descriptor()->name();
}

TEST(Json, IsWhatProtobufPrints) {
  expect_same<proto::SubmitRequest>();
  expect_same<proto::SubmitReply>();
  expect_same<proto::ErrorReply>();
  expect_same<proto::JobList>();
  expect_same<proto::JobDetail>();
  expect_same<proto::NodeList>();
  expect_same<proto::QueueList>();
  expect_same<proto::StatusView>();
  expect_same<proto::FabricView>();
  expect_same<proto::ExplainView>();
}

// A field that the schema gets more of has to be added there as well.
TEST(Json, OfASubmitIsTheSameWithoutTheSchema) {
  proto::SubmitRequest request;
  EXPECT_EQ(json::parse(submit_json(request)), json::parse(print(request)));
  fill(request);
  EXPECT_EQ(json::parse(submit_json(request)), json::parse(print(request)));
}

TEST(Json, NumbersThatAreNoneAreWords) {
  proto::QueueRequest request;
  request.set_weight(std::numeric_limits<double>::infinity());
  request.set_limit_gpus(-std::numeric_limits<double>::infinity());
  request.set_guarantee_gpus(std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(json::parse(print(request)), expected(request));
}

TEST(Json, BytesThatAreNoTextDoNotSpoilAPage) {
  proto::SubmitReply reply;
  reply.add_ids("a\xff\xfe");
  const auto parsed = json::parse(print(reply), nullptr, false);
  ASSERT_FALSE(parsed.is_discarded());
  EXPECT_EQ(parsed["ids"][0].get<std::string>().front(), 'a');
}

}  // namespace
}  // namespace tutti::wire
