#include "serve/load/load.hpp"

#include <gtest/gtest.h>

#include "serve/cpu/tiny_folder_test.hpp"
#include "serve/lora/made_adapter_test.hpp"

namespace tutti::serve {
namespace {

constexpr std::int64_t vocabulary = 257;
constexpr std::int64_t context = 64;

cpu::TinyFolder tiny() { return {vocabulary, context, tokenizer::Tokenizer::bytes().json()}; }

LoadOptions small() { return {.threads = 1, .cache_bytes = 4 << 20}; }

TEST(Load, GivesTheModelOfAFolder) {
  const auto folder = tiny();
  auto loaded = load(folder.path(), small());
  ASSERT_TRUE(loaded) << loaded.error().text();
  EXPECT_EQ(loaded->model->limits().context, context);
  EXPECT_EQ(loaded->model->limits().vocabulary, vocabulary);
  EXPECT_EQ(loaded->source.name, std::filesystem::path(folder.path()).filename().string());
  ASSERT_TRUE(loaded->chat) << loaded->chat.error().text();
  EXPECT_TRUE(loaded->chat->is_fallback());
  EXPECT_EQ(loaded->token_bytes()('a'), "a");
  EXPECT_EQ(loaded->token_bytes()(256), "") << "what ends a text is no part of it";
  EXPECT_EQ(loaded->source.settings.stops, std::vector<std::uint32_t>{256});
}

TEST(Load, AnEndThatTheModelCannotWriteIsNone) {
  const cpu::TinyFolder folder(vocabulary - 1, context, tokenizer::Tokenizer::bytes().json());
  const auto loaded = load(folder.path(), small());
  ASSERT_TRUE(loaded) << loaded.error().text();
  EXPECT_TRUE(loaded->source.settings.stops.empty());
}

TEST(Load, NamesItWithoutASlashBehind) {
  const auto folder = tiny();
  const auto source = open_source(folder.path() + "/");
  ASSERT_TRUE(source) << source.error().text();
  EXPECT_EQ(source->name, std::filesystem::path(folder.path()).filename().string());
}

TEST(Load, WeightsLieInWhatLosesNothing) {
  const auto folder = tiny();
  auto loaded = load(folder.path(), small());
  ASSERT_TRUE(loaded);
  EXPECT_NE(loaded->model->describe().find("f32 weights"), std::string::npos) << loaded->model->describe();
  model::Shape shape = cpu::small_llama();
  shape.vocabulary = vocabulary;
  shape.context = context;
  std::string config = model::config_json(shape);
  config.insert(config.find('{') + 1, "\"torch_dtype\":\"bfloat16\",");
  folder.write("config.json", config);
  loaded = load(folder.path(), small());
  ASSERT_TRUE(loaded) << loaded.error().text();
  EXPECT_NE(loaded->model->describe().find("bf16 weights"), std::string::npos) << loaded->model->describe();
  auto chosen = small();
  chosen.weights = "int8";
  loaded = load(folder.path(), chosen);
  ASSERT_TRUE(loaded);
  EXPECT_NE(loaded->model->describe().find("int8 weights"), std::string::npos);
}

TEST(Load, ATemplateThatCannotBeFollowedIsNoReasonNotToLoad) {
  const auto folder = tiny();
  folder.write("chat_template.jinja", "{% include 'other' %}");
  const auto loaded = load(folder.path(), small());
  ASSERT_TRUE(loaded) << loaded.error().text();
  EXPECT_FALSE(loaded->chat);
}

TEST(Load, SaysWhatIsMissing) {
  const auto folder = tiny();
  std::filesystem::remove(folder.path() + "/tokenizer.json");
  const auto loaded = load(folder.path(), small());
  ASSERT_FALSE(loaded);
  EXPECT_NE(loaded.error().text().find("there is no tokenizer.json"), std::string::npos)
      << loaded.error().text();
  EXPECT_EQ(load("/nowhere", small()).error().code(), ErrorCode::invalid);
  EXPECT_EQ(load("/tmp", small()).error().message(), "it is no model");
}

TEST(Load, RefusesWhatItDoesNotKnow) {
  EXPECT_FALSE(parse_device("tpu"));
  const auto folder = tiny();
  auto options = small();
  options.weights = "fp3";
  EXPECT_FALSE(load(folder.path(), options));
  options = small();
  options.device = Device::cuda;
  EXPECT_FALSE(load(folder.path(), options)) << "there is no GPU in this program";
  options = small();
  options.cache_bytes = 1;
  EXPECT_FALSE(load(folder.path(), options)) << "not even one sequence fits";
}

TEST(Load, AGpuIsWhoeverHasOne) {
  const auto folder = tiny();
  auto options = small();
  options.device = Device::cuda;
  options.on_gpu = [&](const Source& source, const LoadOptions& given) {
    EXPECT_EQ(source.path, folder.path());
    auto here = given;
    here.device = Device::cpu;
    return make_model(source, here);
  };
  const auto loaded = load(folder.path(), options);
  ASSERT_TRUE(loaded) << loaded.error().text();
}

TEST(Load, OptionsTravelAsText) {
  const LoadOptions options{.device = Device::cuda,
                            .weights = "bf16",
                            .threads = 3,
                            .context_max = 4,
                            .cache_bytes = 5,
                            .step_tokens_max = 6,
                            .step_rows_max = 7,
                            .adapters = {{"short", "/where/it lies"}, {"b/2", "rel\"ative"}}};
  const auto read = read_options(write_options(options));
  ASSERT_TRUE(read) << read.error().text();
  EXPECT_EQ(write_options(*read), write_options(options));
  EXPECT_EQ(read->device, Device::cuda);
  EXPECT_EQ(read->adapters, options.adapters);
  for (
      const char* wrong :
      {"", "{}", "[]", R"({"device":"cpu"})",
       R"({"device":"cpu","weights":"f32","threads":-1,"context_max":0,"cache_bytes":0,"step_tokens_max":1,"step_rows_max":1,"adapters":[]})",
       R"({"device":"cpu","weights":"f32","threads":0,"context_max":0,"cache_bytes":0,"step_tokens_max":1,"step_rows_max":1,"adapters":[{"name":"a"}]})"})
    EXPECT_FALSE(read_options(wrong)) << wrong;
}

TEST(Load, AdaptersAreNamedAndOfThisModel) {
  const auto folder = tiny();
  const auto source = open_source(folder.path());
  ASSERT_TRUE(source);
  const lora::MadeAdapter made(source->shape, {});
  auto options = small();
  options.adapters = {{"polite", made.path()}, {"terse", made.path()}};
  options.name = "tiny";
  const auto loaded = load(folder.path(), options);
  ASSERT_TRUE(loaded) << loaded.error().text();
  EXPECT_EQ(loaded->adapters, (std::vector<std::string>{"polite", "terse"}));
  EXPECT_EQ(loaded->model->limits().adapters, 2);
  EXPECT_EQ(loaded->source.name, "tiny");
  options.adapters[1].name = "tiny";
  EXPECT_FALSE(load(folder.path(), options)) << "the model's own name";
  options.adapters[1].name = "polite";
  EXPECT_FALSE(load(folder.path(), options)) << "another's name";
  options.adapters[1] = {"terse", folder.path()};
  const auto wrong = load(folder.path(), options);
  ASSERT_FALSE(wrong);
  EXPECT_NE(wrong.error().text().find("'terse'"), std::string::npos) << wrong.error().text();
  options.adapters.assign(lora::adapters_max + 1, {});
  EXPECT_FALSE(load(folder.path(), options));
}

TEST(Load, AnAdapterIsNameAndFolder) {
  EXPECT_EQ(*parse_adapter("polite=/a/b=c"), (NamedAdapter{"polite", "/a/b=c"}));
  for (const char* wrong : {"", "polite", "polite=", "=/a", "with space=/a", "tab\t=/a", "a\"b=/a"})
    EXPECT_FALSE(parse_adapter(wrong)) << wrong;
  EXPECT_FALSE(parse_adapter(std::string(129, 'a') + "=/a"));
}

}  // namespace
}  // namespace tutti::serve
