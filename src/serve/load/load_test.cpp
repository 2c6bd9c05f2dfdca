#include "serve/load/load.hpp"

#include <cstring>
#include <fstream>
#include <iterator>

#include <gtest/gtest.h>

#include "base/scarcity/scarcity.hpp"
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

TEST(Load, AFolderGivesRowsAsItHasThem) {
  const auto folder = tiny();
  const auto source = open_source(folder.path());
  ASSERT_TRUE(source) << source.error().text();
  const std::string tensor = "model.layers.0.mlp.down_proj.weight";
  const auto columns = static_cast<std::size_t>(source->shape.intermediate);
  std::vector<float> floats(3 * columns);
  ASSERT_TRUE(source->read(tensor, 2, 3, floats));
  std::vector<float> stored(3 * columns);
  auto done =
      source->read_stored(tensor, 2, 3, safetensors::Type::f32, std::as_writable_bytes(std::span(stored)));
  ASSERT_TRUE(done && *done);
  EXPECT_EQ(stored, floats);
  done = source->read_stored(tensor, 2, 3, safetensors::Type::bf16, {});
  ASSERT_TRUE(done);
  EXPECT_FALSE(*done) << "it is of f32";
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
  chosen.weights = "fp8";
  loaded = load(folder.path(), chosen);
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().message(), "weights of fp8 are computed on GPUs alone");
  EXPECT_NE(loaded.error().remedy().find("int8"), std::string::npos);
}

TEST(Load, ATemplateThatCannotBeFollowedIsNoReasonNotToLoad) {
  const auto folder = tiny();
  folder.write("chat_template.jinja", "{% include 'other' %}");
  const auto loaded = load(folder.path(), small());
  ASSERT_TRUE(loaded) << loaded.error().text();
  EXPECT_FALSE(loaded->chat);
}

TEST(Load, AFolderSaysHowItsTextsBecomeVectors) {
  const auto folder = tiny();
  const auto pooling = [&] {
    auto source = open_source(folder.path());
    EXPECT_TRUE(source);
    return source ? source->pooling : Result<Pooling>(source.error());
  };
  EXPECT_EQ(*pooling(), Pooling::last) << "it says nothing";
  std::filesystem::create_directory(folder.path() + "/1_Pooling");
  const std::string file = "1_Pooling/config.json";
  folder.write(
      file,
      R"({"word_embedding_dimension":64,"pooling_mode_cls_token":false,"pooling_mode_mean_tokens":true})");
  EXPECT_EQ(*pooling(), Pooling::mean);
  folder.write(file,
               R"({"pooling_mode_mean_tokens":false,"pooling_mode_lasttoken":true,"include_prompt":true})");
  EXPECT_EQ(*pooling(), Pooling::last);
  folder.write(file, R"({"embedding_dimension":64,"pooling_mode":"mean"})");
  EXPECT_EQ(*pooling(), Pooling::mean);
  for (const auto& [text, name] : std::vector<std::pair<std::string, std::string>>{
           {R"({"pooling_mode_cls_token":true})", "pooling_mode_cls_token"},
           {R"({"pooling_mode_mean_tokens":true,"pooling_mode_max_tokens":true})", "pooling_mode_max_tokens"},
           {R"({"pooling_mode":"weightedmean"})", "weightedmean"},
           {"[]", "no object"},
           {"{}", "none"}}) {
    folder.write(file, text);
    const auto refused = pooling();
    ASSERT_FALSE(refused) << text;
    EXPECT_NE(refused.error().text().find(name), std::string::npos) << refused.error().text();
  }
  folder.write(file, R"({"pooling_mode_mean_tokens":true})");
  folder.write("modules.json", R"([{"idx":0,"type":"sentence_transformers.models.Transformer"},
      {"idx":1,"type":"sentence_transformers.models.Pooling"},{"idx":2,"type":"sentence_transformers.models.Normalize"}])");
  EXPECT_EQ(*pooling(), Pooling::mean);
  folder.write("modules.json", R"([{"idx":2,"type":"sentence_transformers.models.Dense"}])");
  const auto refused = pooling();
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().text().find("'Dense'"), std::string::npos) << refused.error().text();
  EXPECT_TRUE(load(folder.path(), small())) << "it answers all the same";
}

// As models of embeddings are saved: without what stands in front of the names of whole models.
TEST(Load, TensorsAreFoundWithoutTheirPrefix) {
  const auto folder = tiny();
  const auto whole = load(folder.path(), small());
  ASSERT_TRUE(whole);
  const std::string file = folder.path() + "/model.safetensors";
  std::ifstream in(file, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(in)), {});
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), sizeof header_bytes);
  std::string header = bytes.substr(sizeof header_bytes, header_bytes);
  const std::string prefix = "\"model.";
  std::size_t renamed = 0;
  for (std::size_t at = 0; (at = header.find(prefix, at)) != std::string::npos; ++renamed)
    header.replace(at, prefix.size(), "\"");
  ASSERT_GT(renamed, 5U);
  header.resize(header_bytes, ' ');
  folder.write("model.safetensors", bytes.replace(sizeof header_bytes, header_bytes, header));
  const auto bare = load(folder.path(), small());
  ASSERT_TRUE(bare) << bare.error().text();
  const std::vector<Token> tokens{1, 2, 3};
  const std::vector<BlockId> blocks{0};
  const Chunk chunk{.tokens = tokens, .blocks = blocks, .rows = 1};
  ASSERT_TRUE(whole->model->step({&chunk, 1}) && bare->model->step({&chunk, 1}));
  EXPECT_EQ(*whole->model->logits(0), *bare->model->logits(0));
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

// Whatever it is that there is no memory for, and on whichever thread.
TEST(Load, SaysThatThereIsNoMemory) {
  const auto folder = tiny();
  auto options = small();
  options.threads = 3;
  int refused = 0;
  for (std::size_t most = 256; most < (std::size_t{1} << 20); most *= 2) {
    const auto loaded = [&] {
      const Scarcity scarcity(most);
      return load(folder.path(), options);
    }();
    if (loaded) continue;
    ++refused;
    EXPECT_EQ(loaded.error().message(), "this machine has no memory to load it") << loaded.error().text();
    EXPECT_NE(loaded.error().remedy(), "");
  }
  EXPECT_GT(refused, 5);
  EXPECT_TRUE(load(folder.path(), options));
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
                            .ranks = 4,
                            .rank = 3,
                            .port = 65535,
                            .adapters = {{"short", "/where/it lies"}, {"b/2", "rel\"ative"}}};
  const auto read = read_options(write_options(options));
  ASSERT_TRUE(read) << read.error().text();
  EXPECT_EQ(write_options(*read), write_options(options));
  EXPECT_EQ(read->device, Device::cuda);
  EXPECT_EQ(read->adapters, options.adapters);
  for (
      const char* wrong :
      {"", "{}", "[]", R"({"device":"cpu"})",
       R"({"device":"cpu","weights":"f32","threads":-1,"context_max":0,"cache_bytes":0,"step_tokens_max":1,"step_rows_max":1,"ranks":1,"rank":0,"port":0,"adapters":[]})",
       R"({"device":"cpu","weights":"f32","threads":1,"context_max":0,"cache_bytes":0,"step_tokens_max":1,"step_rows_max":1,"ranks":2,"rank":2,"port":0,"adapters":[]})",
       R"({"device":"cpu","weights":"f32","threads":-1,"context_max":0,"cache_bytes":0,"step_tokens_max":1,"step_rows_max":1,"ranks":1,"rank":0,"port":0,"adapters":[]})",
       R"({"device":"cpu","weights":"f32","threads":0,"context_max":0,"cache_bytes":0,"step_tokens_max":1,"step_rows_max":1,"ranks":1,"rank":0,"port":0,"adapters":[{"name":"a"}]})"})
    EXPECT_FALSE(read_options(wrong)) << wrong;
}

TEST(Load, RanksAreStartedByWhoeverCan) {
  const auto folder = tiny();
  auto options = small();
  options.ranks = 2;
  EXPECT_FALSE(load(folder.path(), options)) << "this program starts none";
  options.in_ranks = [&](const Source& source, const LoadOptions& given) {
    EXPECT_EQ(given.ranks, 2);
    auto here = given;
    here.ranks = 1;
    return make_model(source, here);
  };
  const auto loaded = load(folder.path(), options);
  ASSERT_TRUE(loaded) << loaded.error().text();
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
