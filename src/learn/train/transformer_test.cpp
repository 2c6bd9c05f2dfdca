#include "learn/train/transformer.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <mutex>

#include "comm/ranks_test.hpp"
#include "learn/train/failure.hpp"
#include "learn/train/initial_values.hpp"
#include "learn/train/reference_test.hpp"

namespace tutti::train {
namespace {

constexpr std::uint64_t seed = 17;
constexpr std::int64_t length = 16;
constexpr std::int64_t batch = 8;  // sequences of a step

model::Shape small(std::string_view family, bool tied) {
  const bool gpt2 = family == "gpt2";
  auto shape = model::make_shape(family, {.vocabulary = 61,  // no multiple of anything
                                          .layers = 4,
                                          .hidden = 32,
                                          .heads = 4,
                                          .kv_heads = gpt2 ? 4 : 2,
                                          .intermediate = gpt2 ? 128 : 96,
                                          .context = length});
  shape.tied = tied;
  return shape;
}

struct Feature {
  const char* name;
  model::Shape shape;
};

// A model for each feature that another can have, alone, and one that has them all.
std::vector<Feature> features() {
  std::vector<Feature> all;
  model::Shape every = small("llama", true);
  const auto add = [&](const char* name, const auto& change) {
    all.push_back({name, small("llama", true)});
    change(all.back().shape);
    change(every);
  };
  add("a bias of queries, keys and values", [](model::Shape& shape) { shape.qkv_bias = true; });
  add("a bias of the output", [](model::Shape& shape) { shape.output_bias = true; });
  add("a bias of the MLP", [](model::Shape& shape) { shape.mlp_bias = true; });
  add("norms of queries and keys", [](model::Shape& shape) { shape.qk_norm = true; });
  add("another size of heads", [](model::Shape& shape) { shape.head_size = 12; });
  add("a window", [](model::Shape& shape) { shape.window = 5; });
  add("layer norms", [](model::Shape& shape) { shape.norm = model::Norm::layer; });
  add("learned positions", [](model::Shape& shape) { shape.learned_positions = true; });
  add("no gate", [](model::Shape& shape) { shape.gated = false; });
  add("gelu", [](model::Shape& shape) { shape.activation = model::Activation::gelu; });
  all.push_back({"all of them", every});
  all.push_back({"experts", small("llama", true)});
  all.back().shape.experts = {.count = 5, .chosen = 2, .intermediate = 12, .dense_layers = {1}};
  all.push_back({"experts in every second layer, without a gate", small("llama", true)});
  all.back().shape.gated = false;
  all.back().shape.experts = {.count = 7, .chosen = 3, .intermediate = 16, .normalized = false, .every = 2};
  all.push_back({"stretched positions", small("llama", true)});
  all.back().shape.rope = {.kind = model::Rope::Kind::llama3, .factor = 8, .original_context = 8};
  all.push_back({"positions stretched by yarn", small("llama", true)});
  all.back().shape.rope = {.kind = model::Rope::Kind::yarn,
                           .factor = 4,
                           .original_context = 8,
                           .beta_fast = 2,
                           .beta_slow = 0.25,
                           .attention_factor = 1.14};
  all.push_back({"gelu by tanh behind a gate", small("llama", true)});
  all.back().shape.activation = model::Activation::gelu_tanh;
  all.push_back({"rotary positions and shared keys in gpt2's names", small("gpt2", true)});
  all.back().shape.learned_positions = false;
  all.back().shape.kv_heads = 2;
  return all;
}

// Sequences that have something to learn: the next token follows from the one before.
at::Tensor tokens_of(std::int64_t step) {
  at::Tensor tokens = at::empty({batch, length + 1}, at::kLong);
  for (std::int64_t row = 0; row < batch; ++row) {
    std::int64_t token = (step * 7 + row * 13) % 61;
    for (std::int64_t i = 0; i <= length; ++i) {
      tokens[row][i] = token;
      token = (token * 5 + 3 + (i % 3)) % 61;
    }
  }
  return tokens;
}

struct Case {
  model::Shape shape;
  plan::Mesh mesh;
  Zero zero = Zero::none;
  int microbatches = 1;
  int parts = 1;
  bool recompute = false;
};

UpdateOptions update_at(int step) { return {.learning_rate = 3e-3, .clip = 1.0, .step = step + 1}; }

// Losses and gradient norms of some steps, as every rank sees them.
struct Curve {
  std::vector<double> losses;
  std::vector<double> norms;
};

std::vector<Microbatch> microbatches_of(const Case& c, const plan::Place& place, std::int64_t step) {
  const at::Tensor mine = tokens_of(step).chunk(c.mesh.data)[static_cast<std::size_t>(place.replica)];
  std::vector<Microbatch> all;
  for (const at::Tensor& some : mine.chunk(c.microbatches)) {
    all.push_back(
        {some.slice(1, 0, length).contiguous().view({-1}), some.slice(1, 1).contiguous().view({-1})});
  }
  return all;
}

Curve train(const Case& c, int steps) {
  Curve curve;
  std::mutex mutex;
  comm::run_threads(c.mesh.size(), comm::Transport::automatic, [&](comm::Communicator& world) {
    at::set_num_threads(1);
    const auto done = caught([&] {
      const int rank = world.rank();
      Groups groups = Groups::make(world, c.mesh);
      TransformerOptions options{
          .setup = Setup::make(c.shape, groups, batch / c.mesh.data / c.microbatches, length, at::kCPU),
          .keeping = {.zero = c.zero, .microbatches = c.microbatches},
          .parts = c.parts};
      options.setup.recompute = c.recompute;
      Transformer model(options, groups);
      model.parameters().fill(initial_values(seed), false);
      model.parameters().publish();
      for (int step = 0; step < steps; ++step) {
        const double sum = model.run(microbatches_of(c, groups.place, step), 1.0 / (batch * length));
        // Every slice of the last stage has the loss; one of them counts.
        at::Tensor loss = at::full({1}, groups.place.slice == 0 ? sum : 0.0, at::kDouble);
        groups.world.all_reduce(loss);
        const double norm = model.parameters().update(update_at(step));
        if (rank == 0) {
          const std::lock_guard lock(mutex);
          curve.losses.push_back(loss.item<double>() / (batch * length));
          curve.norms.push_back(norm);
        }
      }
    });
    EXPECT_TRUE(done.ok()) << done.error().text();
  });
  return curve;
}

Curve train_reference(const model::Shape& shape, int steps) {
  Reference reference(shape, seed);
  Curve curve;
  for (int step = 0; step < steps; ++step) {
    const at::Tensor tokens = tokens_of(step);
    const auto loss = reference.loss(tokens.slice(1, 0, length), tokens.slice(1, 1));
    loss.backward();
    curve.losses.push_back(loss.item<double>());
    curve.norms.push_back(reference.step(update_at(step)));
  }
  return curve;
}

void expect_same(const Curve& curve, const Curve& expected, const std::string& what) {
  ASSERT_EQ(curve.losses.size(), expected.losses.size()) << what;
  for (std::size_t step = 0; step < curve.losses.size(); ++step) {
    EXPECT_NEAR(curve.losses[step] / expected.losses[step], 1.0, 1e-5) << what << ", loss of step " << step;
    EXPECT_NEAR(curve.norms[step] / expected.norms[step], 1.0, 1e-3) << what << ", norm of step " << step;
  }
}

TEST(Transformer, LearnsAsThePlainProgramDoes) {
  for (const std::string family : {"gpt2", "llama"}) {
    for (const bool tied : {true, false}) {
      const auto shape = small(family, tied);
      const Curve expected = train_reference(shape, 20);
      EXPECT_LT(expected.losses.back(), expected.losses.front() * 0.9) << "nothing was learned";
      expect_same(train({.shape = shape}, 20), expected, family);
    }
  }
}

TEST(Transformer, LearnsEachFeatureAsThePlainProgramDoes) {
  for (const Feature& feature : features())
    expect_same(train({.shape = feature.shape}, 5), train_reference(feature.shape, 5), feature.name);
}

TEST(Transformer, LearnsEachFeatureTheSameInSlices) {
  for (const Feature& feature : features()) {
    const Curve expected = train({.shape = feature.shape}, 5);
    expect_same(train({.shape = feature.shape, .mesh = {.tensor = 2}, .microbatches = 2}, 5), expected,
                feature.name);
    expect_same(train({.shape = feature.shape,
                       .mesh = {.data = 2, .tensor = 2},
                       .zero = Zero::parameters,
                       .recompute = true},
                      5),
                expected, feature.name + std::string(", sharded and recomputed"));
  }
}

TEST(Transformer, LearnsTheSameOnEveryMesh) {
  const std::vector<plan::Mesh> meshes{{.data = 2},
                                       {.tensor = 2},
                                       {.pipeline = 2},
                                       {.data = 2, .tensor = 2},
                                       {.tensor = 2, .pipeline = 2},
                                       {.data = 2, .pipeline = 2},
                                       {.data = 2, .tensor = 2, .pipeline = 2}};
  for (const std::string family : {"gpt2", "llama"}) {
    const auto shape = small(family, family == "gpt2");
    const Curve expected = train({.shape = shape}, 20);
    for (const plan::Mesh& mesh : meshes) {
      for (const Zero zero : {Zero::none, Zero::optimizer, Zero::gradients, Zero::parameters}) {
        if (zero != Zero::none && mesh.data == 1) continue;
        for (const int microbatches : {1, 4}) {
          expect_same(train({.shape = shape, .mesh = mesh, .zero = zero, .microbatches = microbatches}, 20),
                      expected,
                      family + " on " + mesh.text() + ", zero " + std::to_string(static_cast<int>(zero)) +
                          ", " + std::to_string(microbatches) + " microbatches");
        }
      }
    }
  }
}

TEST(Transformer, LearnsTheSameInterleavedAndRecomputed) {
  for (const std::string family : {"gpt2", "llama"}) {
    const auto shape = small(family, family == "llama");
    const Curve expected = train({.shape = shape}, 20);
    expect_same(train({.shape = shape, .mesh = {.pipeline = 2}, .microbatches = 4, .parts = 2}, 20), expected,
                "interleaved");
    expect_same(
        train({.shape = shape, .mesh = {.tensor = 2, .pipeline = 2}, .microbatches = 2, .parts = 2}, 20),
        expected, "interleaved with slices");
    expect_same(train({.shape = shape, .mesh = {.data = 2}, .zero = Zero::parameters, .recompute = true}, 20),
                expected, "recomputed");
    expect_same(train({.shape = shape, .mesh = {.pipeline = 4}, .microbatches = 4}, 20), expected,
                "four stages");
  }
}

// What a stage has sent is let go of when it has arrived: it does not pile up with the microbatches.
TEST(Transformer, HoldsFewSendsHoweverManyMicrobatches) {
  constexpr int many = 48;
  for (const int parts : {1, 2}) {
    comm::run_threads(2, comm::Transport::automatic, [&](comm::Communicator& world) {
      at::set_num_threads(1);
      const auto done = caught([&] {
        Groups groups = Groups::make(world, {.pipeline = 2});
        Transformer model({.setup = Setup::make(small("gpt2", true), groups, 1, length, at::kCPU),
                           .keeping = {.microbatches = many},
                           .parts = parts},
                          groups);
        model.parameters().fill(initial_values(seed), false);
        model.parameters().publish();
        const at::Tensor row = tokens_of(0)[0];
        const std::vector<Microbatch> microbatches(many, {row.slice(0, 0, length), row.slice(0, 1)});
        model.run(microbatches, 1.0 / (many * length));
        EXPECT_GT(model.sends_most(), 0U);
        EXPECT_LE(model.sends_most(), static_cast<std::size_t>(plan::sends_under_way_max(2, parts)));
        EXPECT_LT(model.sends_most(), static_cast<std::size_t>(many) / 2);
        model.parameters().update(update_at(0));
      });
      EXPECT_TRUE(done.ok()) << done.error().text();
    });
  }
}

TEST(Transformer, AStepWhoseGradientsAreNotFiniteChangesNothing) {
  for (const Zero zero : {Zero::none, Zero::optimizer, Zero::gradients, Zero::parameters}) {
    const Case c{.shape = small("llama", true), .mesh = {.data = 2}, .zero = zero};
    comm::run_threads(2, comm::Transport::automatic, [&](comm::Communicator& world) {
      at::set_num_threads(1);
      const auto done = caught([&] {
        Groups groups = Groups::make(world, c.mesh);
        Transformer model(
            {.setup = Setup::make(c.shape, groups, batch / 2, length, at::kCPU), .keeping = {.zero = zero}},
            groups);
        model.parameters().fill(initial_values(seed), false);
        model.parameters().publish();
        const double factor = 1.0 / (batch * length);
        const auto samples = microbatches_of(c, groups.place, 0);
        const double before = model.evaluate(samples);
        // One replica alone is enough.
        model.run(samples, world.rank() == 1 ? std::numeric_limits<double>::infinity() : factor);
        EXPECT_TRUE(std::isnan(model.parameters().update(update_at(0))));
        EXPECT_EQ(model.evaluate(samples), before);
        model.run(samples, factor);
        EXPECT_TRUE(std::isfinite(model.parameters().update(update_at(1))));
        EXPECT_LT(model.evaluate(samples), before) << "what was bad is forgotten";
      });
      EXPECT_TRUE(done.ok()) << done.error().text();
    });
  }
}

TEST(Transformer, RunsTwiceToTheSameBits) {
  const Case c{.shape = small("llama", true),
               .mesh = {.data = 2, .tensor = 2},
               .zero = Zero::optimizer,
               .microbatches = 2};
  const Curve once = train(c, 5);
  const Curve again = train(c, 5);
  EXPECT_EQ(once.losses, again.losses);
  EXPECT_EQ(once.norms, again.norms);
}

}  // namespace
}  // namespace tutti::train
