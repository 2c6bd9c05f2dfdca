#include "learn/recipe/recipe.hpp"

#include <cmath>
#include <numbers>

#include "base/json/parse.hpp"
#include "base/json/write.hpp"

namespace tutti::recipe {
namespace {

struct Writer {
  json::Object& out;

  void operator()(const char* name, const std::int64_t& value, std::int64_t, std::int64_t, const char*) {
    out[name] = value;
  }
  template <class T>
  void operator()(const char* name, const T& value, const char*) {
    out[name] = value;
  }
};

struct Reader {
  const json::Object& in;
  std::string problem;

  void wrong(const char* name) { problem = "'" + std::string(name) + "' has a wrong value"; }
  // The value as `read` reads it; what it reads nothing from is of another kind.
  template <class T, class Read>
  void take(const char* name, T& target, Read read) {
    const json::Value* const value = in.find(name);
    if (value == nullptr) return;
    if (const auto held = (value->*read)()) {
      target = *held;
    } else {
      wrong(name);
    }
  }

  void operator()(const char* name, std::int64_t& target, std::int64_t least, std::int64_t most,
                  const char*) {
    std::int64_t whole = target;
    take(name, whole, &json::Value::whole);
    if (whole < least || whole > most) wrong(name);
    target = whole;
  }
  void operator()(const char* name, double& target, const char*) { take(name, target, &json::Value::number); }
  void operator()(const char* name, bool& target, const char*) { take(name, target, &json::Value::boolean); }
  void operator()(const char* name, std::string& target, const char*) {
    take(name, target, &json::Value::text);
  }
};

bool is_rate(double value) { return value >= 0 && value < 1e3; }

constexpr std::int64_t rows_wanted = 8192;  // of a microbatch: enough for matrix products at full speed

Result<> check_trainable(const model::Shape& shape) {
  if (shape.experts.count == 0 && shape.model_type != "qwen3_moe") return {};
  return invalid("training a mixture of experts is not built yet").remedy("train a model without experts");
}

}  // namespace

std::string json_of(const Recipe& recipe) {
  json::Object out;
  visit_keys(recipe, Writer{out});
  return json::write(out, {.indent = 2}) + "\n";
}

Result<Recipe> parse_recipe(std::string_view text) {
  const auto in = json::parse(text);
  if (!in || in->object() == nullptr) return invalid("a recipe is a JSON object");
  Recipe recipe;
  Reader reader{*in->object(), ""};
  visit_keys(recipe, reader);
  if (recipe.data.empty() && in->find("data") == nullptr)
    return invalid("'data' is missing").within("the recipe");
  if (!reader.problem.empty()) return invalid(reader.problem).within("the recipe");
  if (auto fine = check(recipe); !fine) return std::move(fine).error();
  return recipe;
}

Recipe resolved(Recipe recipe, Place place) {
  if (recipe.precision == "auto") recipe.precision = place == Place::gpu ? "bf16" : "f32";
  return recipe;
}

Result<> check(const Recipe& r) {
  if (r.precision != "auto" && r.precision != "f32" && r.precision != "bf16") {
    return invalid("precision '" + r.precision + "' is not known").remedy("f32 or bf16, or auto");
  }
  if (r.parallel != "auto") {
    if (auto mesh = plan::parse_mesh(r.parallel); !mesh) return std::move(mesh).error().within("parallel");
  }
  if (!(r.learning_rate > 0) || !is_rate(r.learning_rate) || !is_rate(r.final_learning_rate)) {
    return invalid("the learning rates must be positive numbers");
  }
  if (!is_rate(r.weight_decay) || !(r.clip >= 0)) return invalid("weight_decay and clip cannot be negative");
  if (!(r.beta1 >= 0 && r.beta1 < 1) || !(r.beta2 >= 0 && r.beta2 < 1)) {
    return invalid("beta1 and beta2 lie between 0 and 1");
  }
  return {};
}

Result<model::Shape> shape_of(const Recipe& r, std::string_view config, std::int64_t vocabulary) {
  if (!config.empty()) {
    auto shape = model::parse_config(config);
    if (!shape) return shape;
    if (shape->vocabulary < vocabulary) {
      return invalid("the data has tokens up to " + std::to_string(vocabulary) + ", the model " +
                     std::to_string(shape->vocabulary))
          .remedy("pack the data with the tokenizer of the model");
    }
    if (shape->learned_positions && shape->context < r.context) {
      return invalid("the model has positions for " + std::to_string(shape->context) +
                     " tokens, context is " + std::to_string(r.context));
    }
    if (auto fine = check_trainable(*shape); !fine) return std::move(fine).error();
    return shape;
  }
  const auto family = model::family_of(r.model);
  if (!family) return Error(family.error()).within("model");
  constexpr std::int64_t multiple = 64;  // of an MLP with a gate, where it is not given
  const std::int64_t intermediate =
      family->gated ? (8 * r.hidden / 3 + multiple - 1) / multiple * multiple : 4 * r.hidden;
  model::Shape shape =
      model::make_shape(r.model, {.vocabulary = vocabulary,
                                  .layers = r.layers,
                                  .hidden = r.hidden,
                                  .heads = r.heads,
                                  .kv_heads = r.kv_heads,
                                  .head_size = r.head_size,
                                  .intermediate = r.intermediate == 0 ? intermediate : r.intermediate,
                                  .context = r.context});
  if (r.head_size == 0 && r.hidden % r.heads != 0)
    return invalid("the hidden size must be a multiple of the heads").within("the model's shape");
  if (auto fine = model::check(shape); !fine) return std::move(fine).error();
  if (auto fine = check_trainable(shape); !fine) return std::move(fine).error();
  return shape;
}

double learning_rate_at(const Recipe& r, std::int64_t step) {
  if (step < r.warmup) return r.learning_rate * static_cast<double>(step + 1) / static_cast<double>(r.warmup);
  const auto length = static_cast<double>(std::max<std::int64_t>(1, r.steps - r.warmup));
  const double done = std::min(1.0, static_cast<double>(step - r.warmup) / length);
  return r.final_learning_rate +
         0.5 * (1.0 + std::cos(std::numbers::pi * done)) * (r.learning_rate - r.final_learning_rate);
}

std::int64_t microbatch_of(const Recipe& r, const plan::Mesh& mesh) {
  const std::int64_t replica = r.batch / mesh.data;
  if (r.microbatch > 0) return std::min(r.microbatch, replica);
  // A pipeline wants several microbatches for each of its stages; else as large as is useful.
  std::int64_t most = std::max<std::int64_t>(1, rows_wanted / r.context);
  if (mesh.pipeline > 1) most = std::min(most, std::max<std::int64_t>(1, replica / mesh.pipeline / 2));
  std::int64_t best = 1;
  for (std::int64_t size = 1; size <= std::min(most, replica); ++size) {
    const bool whole_rounds = r.interleave == 1 || (replica / size) % mesh.pipeline == 0;
    if (replica % size == 0 && whole_rounds) best = size;
  }
  return best;
}

Result<> check_mesh(const Recipe& r, const model::Shape& shape, const plan::Mesh& mesh) {
  const auto number = [](std::int64_t value) { return std::to_string(value); };
  const auto no = [&](const std::string& why) -> Result<> {
    return invalid(why).within("mesh " + mesh.text());
  };
  if (shape.heads % mesh.tensor != 0 || shape.kv_heads % mesh.tensor != 0) {
    return no("tp" + number(mesh.tensor) + " does not divide the " + number(shape.heads) + " heads (" +
              number(shape.kv_heads) + " of keys and values)");
  }
  if (shape.intermediate % mesh.tensor != 0) {
    return no("tp" + number(mesh.tensor) + " does not divide the MLP of " + number(shape.intermediate));
  }
  if (mesh.pipeline * r.interleave > shape.layers) {
    return no(number(shape.layers) + " layers cannot be cut into " + number(mesh.pipeline * r.interleave) +
              " parts");
  }
  if (r.batch % mesh.data != 0) {
    return no("a batch of " + number(r.batch) + " sequences is not shared evenly by dp" + number(mesh.data));
  }
  const std::int64_t microbatch = microbatch_of(r, mesh);
  const std::int64_t replica = r.batch / mesh.data;
  if (replica % microbatch != 0) {
    return no("microbatches of " + number(microbatch) + " do not divide the " + number(replica) +
              " sequences of a replica");
  }
  if (microbatch * r.context % mesh.tensor != 0) {
    return no("tp" + number(mesh.tensor) + " does not divide the " + number(microbatch * r.context) +
              " tokens of a microbatch");
  }
  if (r.interleave > 1 && (mesh.pipeline == 1 || replica / microbatch % mesh.pipeline != 0)) {
    return no("interleaving needs a pipeline, and a multiple of its stages as microbatches (" +
              number(replica / microbatch) + " here)");
  }
  return {};
}

}  // namespace tutti::recipe
