#include "learn/recipe/recipe.hpp"

#include <gtest/gtest.h>

#include "learn/recipe/choose.hpp"
#include "learn/recipe/memory.hpp"

namespace tutti::recipe {
namespace {

model::Shape gpt2_124m() {
  return model::make_shape(
      "gpt2",
      {.vocabulary = 50257, .layers = 12, .hidden = 768, .heads = 12, .intermediate = 3072, .context = 1024});
}
Recipe large() {
  Recipe recipe;
  recipe.context = 1024;
  recipe.batch = 64;
  recipe.precision = "bf16";
  return recipe;
}
model::Shape llama_7b() {
  return model::make_shape("llama", {.vocabulary = 32000,
                                     .layers = 32,
                                     .hidden = 4096,
                                     .heads = 32,
                                     .intermediate = 11008,
                                     .context = 2048});
}

TEST(Recipe, TravelsAsJson) {
  Recipe recipe;
  recipe.data = "/data/with \"quotes\"";
  recipe.learning_rate = 1.0 / 3;
  recipe.recompute = true;
  recipe.steps = 12345678901;
  auto back = parse_recipe(json_of(recipe));
  ASSERT_TRUE(back.ok()) << back.error().text();
  EXPECT_EQ(json_of(*back), json_of(recipe));
}

TEST(Recipe, DescribesAModelOfEachFamily) {
  Recipe recipe;
  recipe.hidden = 96;
  recipe.heads = 4;
  recipe.kv_heads = 2;
  for (const std::string family : {"llama", "mistral", "qwen2", "qwen3"}) {
    recipe.model = family;
    const auto shape = shape_of(recipe, "", 100);
    ASSERT_TRUE(shape) << shape.error().text();
    EXPECT_EQ(shape->model_type, family);
    EXPECT_EQ(shape->head_size, 24);
    EXPECT_EQ(shape->intermediate, 256);
    EXPECT_FALSE(shape->tied);
    EXPECT_EQ(shape->qkv_bias, family == "qwen2");
    EXPECT_EQ(shape->qk_norm, family == "qwen3");
  }
  recipe.head_size = 64;
  EXPECT_EQ(shape_of(recipe, "", 100)->head_size, 64);
  recipe.heads = 5;
  recipe.kv_heads = 5;
  EXPECT_TRUE(shape_of(recipe, "", 100)) << "the size of a head is given";
  recipe.head_size = 0;
  EXPECT_EQ(shape_of(recipe, "", 100).error().text(),
            "the model's shape : the hidden size must be a multiple of the heads");
  recipe.model = "bert";
  EXPECT_EQ(shape_of(recipe, "", 100).error().text(), "model : 'bert' is no known kind of model");
}

TEST(Recipe, TakesAMixtureOfExpertsFromItsConfigAlone) {
  Recipe recipe;
  recipe.model = "qwen3_moe";
  EXPECT_EQ(shape_of(recipe, "", 100).error().text(), "model : a mixture of experts has no keys here");
  auto shape = model::make_shape(
      "qwen3_moe",
      {.vocabulary = 100, .layers = 2, .hidden = 32, .heads = 4, .intermediate = 64, .context = 256});
  shape.experts = {.count = 4, .chosen = 2, .intermediate = 16};
  EXPECT_EQ(*shape_of(recipe, model::config_json(shape), 100), shape);
  EXPECT_TRUE(check_mesh(recipe, shape, {.tensor = 4}));
  shape.experts.intermediate = 18;
  EXPECT_EQ(check_mesh(recipe, shape, {.tensor = 4}).error().text(),
            "mesh tp4 : tp4 does not divide the experts' MLP of 18");
}

TEST(Memory, CountsWhatAFeatureKeeps) {
  const auto bytes = [](const auto& change, Place place) {
    auto shape = llama_7b();
    change(shape);
    return memory_of(large(), shape, {}, place).activations;
  };
  const auto plain = bytes([](auto&) {}, Place::gpu);
  EXPECT_GT(bytes([](auto& shape) { shape.head_size *= 2; }, Place::gpu), plain);
  EXPECT_GT(bytes([](auto& shape) { shape.qk_norm = true; }, Place::gpu), plain);
  EXPECT_GT(
      bytes(
          [](auto& shape) { shape.experts = {.count = 8, .chosen = 2, .intermediate = shape.intermediate}; },
          Place::gpu),
      plain);
  EXPECT_GT(bytes([](auto& shape) { shape.window = 64; }, Place::gpu), plain) << "probabilities are kept";
  EXPECT_EQ(bytes([](auto& shape) { shape.window = 1024; }, Place::gpu), plain) << "as long as the context";
  EXPECT_EQ(bytes([](auto& shape) { shape.window = 64; }, Place::host), bytes([](auto&) {}, Place::host));
}

TEST(Recipe, RefusesWhatIsWrong) {
  EXPECT_FALSE(parse_recipe("").ok());
  EXPECT_FALSE(parse_recipe("[]").ok());
  EXPECT_FALSE(parse_recipe("{}").ok());
  const std::string good = json_of(Recipe{});
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return parse_recipe(text);
  };
  EXPECT_FALSE(with("\"steps\": 1000", "\"steps\": 0").ok());
  EXPECT_FALSE(with("\"steps\": 1000", "\"steps\": \"many\"").ok());
  EXPECT_FALSE(with("\"precision\": \"auto\"", "\"precision\": \"f8\"").ok());
  EXPECT_FALSE(with("\"parallel\": \"auto\"", "\"parallel\": \"zp2\"").ok());
  EXPECT_FALSE(with("\"zero\": 0", "\"zero\": 4").ok());
  EXPECT_FALSE(with("\"beta1\": 0.9", "\"beta1\": 1.0").ok());
}

TEST(Recipe, TheLearningRateWarmsUpAndFollowsACosine) {
  Recipe recipe;
  recipe.steps = 110;
  recipe.warmup = 10;
  recipe.learning_rate = 1.0;
  recipe.final_learning_rate = 0.1;
  EXPECT_DOUBLE_EQ(learning_rate_at(recipe, 0), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate_at(recipe, 9), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate_at(recipe, 10), 1.0);
  EXPECT_NEAR(learning_rate_at(recipe, 60), 0.55, 1e-12);
  EXPECT_NEAR(learning_rate_at(recipe, 110), 0.1, 1e-12);
  EXPECT_NEAR(learning_rate_at(recipe, 1000), 0.1, 1e-12);
}

TEST(Recipe, AMeshMustDivideWhatItCuts) {
  const Recipe recipe = large();
  const auto shape = gpt2_124m();
  EXPECT_TRUE(check_mesh(recipe, shape, {.data = 2, .tensor = 2, .pipeline = 2}).ok());
  for (const plan::Mesh& mesh : {plan::Mesh{.tensor = 5}, plan::Mesh{.pipeline = 13}, plan::Mesh{.data = 3},
                                 plan::Mesh{.data = 128}}) {
    auto no = check_mesh(recipe, shape, mesh);
    ASSERT_FALSE(no.ok()) << mesh.text();
    EXPECT_NE(no.error().text().find(mesh.text()), std::string::npos) << no.error().text();
  }
  Recipe interleaved = recipe;
  interleaved.interleave = 2;
  EXPECT_TRUE(check_mesh(interleaved, shape, {.pipeline = 2}).ok());
  EXPECT_FALSE(check_mesh(interleaved, shape, {.data = 2}).ok());
}

TEST(Memory, CountsWhatTheLiteratureCounts) {
  Recipe recipe = large();
  recipe.microbatch = 1;
  recipe.batch = 1;
  const auto parameters = model::parameters(llama_7b());
  // bf16 weights and gradients, f32 master weights and two moments: 16 bytes a parameter.
  const Memory one = memory_of(recipe, llama_7b(), {}, Place::gpu);
  EXPECT_EQ(one.weights + one.gradients + one.optimizer, 16 * parameters);
  recipe.batch = 8;
  recipe.zero = 1;
  const Memory sharded = memory_of(recipe, llama_7b(), {.data = 8}, Place::gpu);
  EXPECT_EQ(sharded.optimizer, 12 * parameters / 8);
  recipe.zero = 3;
  EXPECT_LT(memory_of(recipe, llama_7b(), {.data = 8}, Place::gpu).total(), sharded.total() * 2 / 3);
  EXPECT_LT(memory_of(recipe, llama_7b(), {.tensor = 8}, Place::gpu).total(), one.total() / 6);
}

TEST(Memory, CountsTheCopyOfACheckpointWhereItLies) {
  Recipe recipe = large();
  recipe.precision = "f32";
  recipe.batch = 8;
  const auto parameters = model::parameters(gpt2_124m());
  for (const std::int64_t zero : {0, 1, 3}) {
    recipe.zero = zero;
    const plan::Mesh mesh{.data = 4};
    const Memory host = memory_of(recipe, gpt2_124m(), mesh, Place::host);
    EXPECT_NEAR(static_cast<double>(host.checkpoint), 12.0 * static_cast<double>(parameters) / 4, 1e3);
    EXPECT_EQ(host.on_host, 0) << "it is counted once";
    EXPECT_GT(host.total(), host.checkpoint + host.weights + host.gradients + host.optimizer);
    EXPECT_NE(host.text().find(" checkpoint, "), std::string::npos) << host.text();
    const Memory gpu = memory_of(recipe, gpt2_124m(), mesh, Place::gpu);
    EXPECT_EQ(gpu.on_host, host.checkpoint);
    EXPECT_EQ(gpu.checkpoint, 0);
  }
}

TEST(Memory, CountsAllLogitsThatAreThereAtATime) {
  constexpr std::int64_t columns = 50'000;
  for (const Place place : {Place::host, Place::gpu}) {
    const std::int64_t at_a_time = place == Place::host ? std::int64_t{1} << 22 : std::int64_t{1} << 29;
    for (const double of_it : {0.5, 1.0, 1.9, 2.1, 7.7}) {
      const auto rows = static_cast<std::int64_t>(of_it * static_cast<double>(at_a_time) / columns);
      const std::int64_t pieces = logit_pieces(rows, columns, place);
      EXPECT_LE(rows / pieces * columns, at_a_time) << of_it;
      Recipe recipe = large();
      recipe.microbatch = 1;
      recipe.batch = 1;
      recipe.context = rows;
      model::Shape shape = gpt2_124m();
      shape.vocabulary = columns;
      const std::int64_t largest_piece = (rows + pieces - 1) / pieces * columns;
      EXPECT_GE(memory_of(recipe, shape, {}, place).logits, largest_piece * 2) << of_it << ", in bf16";
    }
  }
}

TEST(Choose, TakesReplicasWhereTheModelFits) {
  EXPECT_EQ(*choose_mesh(large(), gpt2_124m(),
                         {.ranks = 8, .nodes = {8}, .place = Place::gpu, .memory = 80LL << 30}),
            (plan::Mesh{.data = 8}));
  EXPECT_EQ(*choose_mesh(large(), gpt2_124m(), {.ranks = 1}), plan::Mesh{});
}

TEST(Choose, CutsAModelThatDoesNotFit) {
  const Ground ground{.ranks = 8, .nodes = {8}, .place = Place::gpu, .memory = 40LL << 30};
  const auto mesh = choose_mesh(large(), llama_7b(), ground);
  ASSERT_TRUE(mesh.ok()) << mesh.error().text();
  EXPECT_GT(mesh->tensor * mesh->pipeline, 1);
  EXPECT_LE(memory_of(large(), llama_7b(), *mesh, Place::gpu).total(), ground.memory);
}

TEST(Choose, RefusesWithTheNumbersAndAMeshThatWouldFit) {
  Recipe recipe = large();
  recipe.parallel = "dp8";
  const Ground ground{.ranks = 8, .nodes = {8}, .place = Place::gpu, .memory = 40LL << 30};
  const auto refused = choose_mesh(recipe, llama_7b(), ground);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().text().find("GiB weights"), std::string::npos) << refused.error().text();
  EXPECT_NE(refused.error().remedy().find("this would fit: parallel: "), std::string::npos)
      << refused.error().remedy();
  const auto hopeless =
      choose_mesh(recipe, llama_7b(), {.ranks = 8, .nodes = {8}, .place = Place::gpu, .memory = 1 << 20});
  ASSERT_FALSE(hopeless.ok());
  EXPECT_NE(hopeless.error().remedy().find("no mesh of 8 ranks would fit"), std::string::npos);
}

TEST(Choose, RefusesGpusWhoseHostsHaveNoRoomForTheCopyOfACheckpoint) {
  const Ground ground{
      .ranks = 8, .nodes = {8}, .place = Place::gpu, .memory = 80LL << 30, .host_memory = 4LL << 30};
  EXPECT_TRUE(choose_mesh(large(), gpt2_124m(), ground).ok());
  const auto refused = choose_mesh(large(), llama_7b(), ground);
  ASSERT_FALSE(refused.ok()) << "12 bytes of each of its parameters, a part on each rank";
  EXPECT_NE(refused.error().text().find("of its host's memory for the copy of a checkpoint and has 4 GiB"),
            std::string::npos)
      << refused.error().text();
}

TEST(Choose, RanksShareTheMemoryOfTheirHosts) {
  EXPECT_EQ(memory_of_each({64, 64}, 1), 64);
  EXPECT_EQ(memory_of_each({64, 64}, 2), 64);
  EXPECT_EQ(memory_of_each({64, 64}, 3), 32);
  EXPECT_EQ(memory_of_each({90, 10}, 3), 30);  // all on the large one
  EXPECT_EQ(memory_of_each({10, 10}, 32), 0);  // not a byte for each
  EXPECT_EQ(memory_of_each({64, 0}, 2), 0);    // not known
  EXPECT_EQ(memory_of_each({}, 2), 0);
}

TEST(Choose, ASmallerGangKeepsSlicesAndStages) {
  Recipe recipe = large();
  recipe.parallel = "dp4 tp2 pp2";
  const auto at = [&](int ranks) {
    return choose_mesh(recipe, gpt2_124m(), {.ranks = ranks, .nodes = {8, 8}});
  };
  EXPECT_EQ(*at(16), (plan::Mesh{.data = 4, .tensor = 2, .pipeline = 2}));
  EXPECT_EQ(*at(8), (plan::Mesh{.data = 2, .tensor = 2, .pipeline = 2}));
  EXPECT_EQ(*at(4), (plan::Mesh{.tensor = 2, .pipeline = 2}));
  EXPECT_FALSE(at(32).ok());
  EXPECT_EQ(*at(2), (plan::Mesh{.data = 2}));  // too few for that: the rule without a name
}

// Nodes of 6 and of 2 GPUs: whatever the mesh, the slices of a layer lie on one node.
TEST(Choose, NeverCutsALayerAcrossNodes) {
  Recipe recipe = large();
  const auto on = [&](std::vector<int> nodes, bool placed) {
    int ranks = 0;
    for (const int node : nodes) ranks += node;
    return choose_mesh(recipe, gpt2_124m(), {.ranks = ranks, .nodes = std::move(nodes), .placed = placed});
  };
  recipe.parallel = "dp4 tp2";
  EXPECT_EQ(on({6, 2}, true)->text(), "dp4 tp2");
  EXPECT_EQ(on({4, 4}, true)->text(), "dp4 tp2");
  EXPECT_EQ(on({5, 3}, true)->text(), "dp8") << "ranks that have their places do their best with them";
  recipe.parallel = "dp2 tp4";
  EXPECT_EQ(on({4, 4}, true)->text(), "dp2 tp4");
  EXPECT_EQ(on({6, 2}, true)->text(), "dp8");
  const auto refused = on({6, 2}, false);
  ASSERT_FALSE(refused.ok()) << "before they have places, another mesh is asked for";
  EXPECT_EQ(refused.error().text(),
            "mesh dp2 tp4 : tp4 needs groups of 4 ranks on one node, and the nodes have 6, 2");
  recipe.parallel = "auto";
  const Ground tight{.ranks = 8, .nodes = {6, 2}, .placed = true, .place = Place::gpu, .memory = 40LL << 30};
  const auto cut = choose_mesh(recipe, llama_7b(), tight);
  ASSERT_TRUE(cut.ok()) << cut.error().text();
  EXPECT_GT(cut->tensor * cut->pipeline, 1);
  EXPECT_LE(cut->tensor, 2);
}

TEST(Choose, AsksThePlacementForWhatTheSlicesNeed) {
  const auto ask = [](std::vector<int> nodes, int ranks, int slices) {
    return arrange({.ranks = ranks, .nodes = std::move(nodes)}, slices);
  };
  EXPECT_EQ(*ask({8, 8}, 16, 1), Arrangement()) << "single ranks lie anywhere";
  EXPECT_EQ(*ask({8, 8}, 16, 2), (Arrangement{2, 8}));
  EXPECT_EQ(*ask({8, 8, 8}, 12, 4), (Arrangement{3, 4})) << "evenly, though two nodes would hold them";
  EXPECT_EQ(*ask({6, 2, 2, 2}, 8, 2), (Arrangement{4, 2}));
  EXPECT_EQ(*ask({6, 2}, 8, 2), Arrangement()) << "all nodes, each of them in pairs";
  EXPECT_FALSE(ask({6, 2}, 8, 4));
  EXPECT_FALSE(ask({5, 3}, 8, 2));
  EXPECT_EQ(*ask({4}, 16, 4), (Arrangement{4, 4})) << "more such nodes may come";
  EXPECT_EQ(*ask({}, 16, 4), Arrangement()) << "nothing is known";
}

TEST(Choose, ASmallerGangIsPlacedAsTheWholeOne) {
  Recipe recipe = large();
  recipe.parallel = "dp4 tp2";
  for (const int count : rank_counts(recipe, gpt2_124m(), {.ranks = 8, .nodes = {2, 2, 2, 2}}))
    EXPECT_EQ(count % 2, 0) << "two on each node";
}

TEST(Choose, PrecisionIsWhatSuitsThePlace) {
  EXPECT_EQ(resolved(Recipe(), Place::gpu).precision, "bf16");
  EXPECT_EQ(resolved(Recipe(), Place::host).precision, "f32");
  Recipe named;
  named.precision = "f32";
  EXPECT_EQ(resolved(named, Place::gpu).precision, "f32");
}

TEST(Memory, CountsWhatIsBesideTheTensors) {
  const Recipe recipe = large();
  const Memory gpu = memory_of(recipe, gpt2_124m(), {.data = 8}, Place::gpu);
  EXPECT_GT(gpu.overhead, std::int64_t{1} << 30) << "a context and communicators";
  EXPECT_NE(gpu.text().find("overhead"), std::string::npos);
  // What a pipeline sends is bounded, however many microbatches there are.
  Recipe few = recipe;
  few.microbatch = 1;
  few.batch = 64;
  Recipe many = few;
  many.batch = 4096;
  const plan::Mesh mesh{.pipeline = 4};
  EXPECT_GT(memory_of(few, gpt2_124m(), mesh, Place::gpu).messages, 0);
  EXPECT_EQ(memory_of(few, gpt2_124m(), mesh, Place::gpu).messages,
            memory_of(many, gpt2_124m(), mesh, Place::gpu).messages);
}

TEST(Recipe, OfAnEarlierTuttiHasTheDefaultsOfWhatIsNew) {
  std::string text = json_of(Recipe{});
  const auto at = text.find("  \"bad_steps_max\"");
  text.erase(at, text.find('\n', at) + 1 - at);
  const auto back = parse_recipe(text);
  ASSERT_TRUE(back.ok()) << back.error().text();
  EXPECT_EQ(back->bad_steps_max, Recipe{}.bad_steps_max);
}

TEST(Choose, ListsTheCountsThatWork) {
  Recipe recipe = large();
  recipe.parallel = "auto";
  recipe.batch = 8;
  const auto counts = rank_counts(recipe, gpt2_124m(), {.ranks = 8, .nodes = {8}});
  ASSERT_FALSE(counts.empty());
  EXPECT_EQ(counts.front(), 8);
  EXPECT_EQ(counts.back(), 1);
  for (std::size_t i = 1; i < counts.size(); ++i) EXPECT_LT(counts[i], counts[i - 1]);
}

}  // namespace
}  // namespace tutti::recipe
