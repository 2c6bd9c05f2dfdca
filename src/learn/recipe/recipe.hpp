// A training run as one value: what the user's file says, and what `tutti train` hands to its ranks. Every
// key has one place, the list below; the file's reader, the JSON between the programs and the help are made
// from it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "learn/model/shape.hpp"
#include "learn/plan/mesh.hpp"

namespace tutti::recipe {

struct Recipe {
  std::string run = "run";
  std::string data;
  std::string model = "gpt2";
  std::string weights;
  std::int64_t layers = 4;
  std::int64_t hidden = 256;
  std::int64_t heads = 4;
  std::int64_t kv_heads = 0;
  std::int64_t head_size = 0;
  std::int64_t intermediate = 0;
  std::int64_t context = 256;
  std::int64_t steps = 1000;
  std::int64_t batch = 8;
  std::int64_t microbatch = 0;
  double learning_rate = 6e-4;
  double final_learning_rate = 6e-5;
  std::int64_t warmup = 100;
  double weight_decay = 0.1;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double clip = 1.0;
  std::int64_t seed = 1;
  std::string precision = "auto";
  std::string parallel = "auto";
  std::int64_t zero = 0;
  std::int64_t interleave = 1;
  bool recompute = false;
  std::int64_t checkpoint_every = 100;
  std::int64_t checkpoints_kept = 3;
  std::int64_t bad_steps_max = 10;
};

constexpr std::int64_t count_max = std::int64_t{1} << 40;

// visitor(name, target, smallest, largest, help) for whole numbers, visitor(name, target, help) for the
// others.
template <class R, class Visitor>
void visit_keys(R& r, Visitor&& visitor) {
  visitor("run", r.run, "the run's folder: metrics and checkpoints; all nodes must reach it");
  visitor("data", r.data, "a folder that `tutti data pack` made");
  visitor("model", r.model,
          "gpt2, llama, mistral, qwen2 or qwen3 with the sizes below, or a config.json or folder of Hugging "
          "Face");
  visitor("weights", r.weights, "a folder or file of safetensors to start from, instead of random values");
  visitor("layers", r.layers, 1, 4096, "blocks of the model");
  visitor("hidden", r.hidden, 1, 1 << 20, "width of the model");
  visitor("heads", r.heads, 1, 4096, "attention heads");
  visitor("kv_heads", r.kv_heads, 0, 4096, "heads of keys and values; 0: as many as heads");
  visitor("head_size", r.head_size, 0, 1 << 20, "numbers of a head; 0: hidden / heads");
  visitor("intermediate", r.intermediate, 0, 1 << 22,
          "width of the MLP; 0: 4 x hidden, where it has a gate about 8/3 x");
  visitor("context", r.context, 1, 1 << 24, "tokens of a sequence");
  visitor("steps", r.steps, 1, count_max, "steps of the optimizer in all");
  visitor("batch", r.batch, 1, count_max, "sequences of a step, over all ranks");
  visitor("microbatch", r.microbatch, 0, count_max,
          "sequences that a rank computes at once; 0: as many as is good");
  visitor("learning_rate", r.learning_rate, "after the warm-up");
  visitor("final_learning_rate", r.final_learning_rate, "at the last step, reached along a cosine");
  visitor("warmup", r.warmup, 0, count_max, "steps until the learning rate is reached");
  visitor("weight_decay", r.weight_decay, "of matrices; norms and biases do not decay");
  visitor("beta1", r.beta1, "of AdamW's first moment");
  visitor("beta2", r.beta2, "of AdamW's second moment");
  visitor("clip", r.clip, "longest gradient, as the norm over all parameters; 0: any");
  visitor("seed", r.seed, 0, count_max, "of initial values and of the order of the data");
  visitor("precision", r.precision, "f32, bf16 with f32 master weights (GPUs), or auto: bf16 on GPUs");
  visitor("parallel", r.parallel, "auto, or a mesh such as dp2 tp2 pp2");
  visitor("zero", r.zero, 0, 3, "shard over replicas: 1 optimizer, 2 also gradients, 3 also parameters");
  visitor("interleave", r.interleave, 1, 64, "parts of the model on each pipeline stage");
  visitor("recompute", r.recompute, "compute activations again instead of keeping them");
  visitor("checkpoint_every", r.checkpoint_every, 1, count_max, "steps between checkpoints");
  visitor("checkpoints_kept", r.checkpoints_kept, 1, 1 << 20, "how many of them stay");
  visitor("bad_steps_max", r.bad_steps_max, 1, count_max,
          "stop after so many steps in a row whose gradients are not finite");
}

std::string json_of(const Recipe& recipe);
// Every key must be in its bounds: it comes from tutti itself. One that is not there is younger than the
// recipe, and has its default.
Result<Recipe> parse_recipe(std::string_view json);

// Where the ranks compute: the host keeps attention's probabilities, a GPU does not.
enum class Place { host, gpu };

// The recipe with its precision named: what `auto` is there.
Recipe resolved(Recipe recipe, Place place);

// What cannot be, whatever the mesh: words that are none, rates that are not positive.
Result<> check(const Recipe& recipe);

// The model that the sizes describe, if it can be trained. `config` is the text of the config.json that
// `model` names, or empty; `vocabulary` is that of the data.
Result<model::Shape> shape_of(const Recipe& recipe, std::string_view config, std::int64_t vocabulary);

// The learning rate of a step, counted from 0.
double learning_rate_at(const Recipe& recipe, std::int64_t step);

// Whether the mesh can train the model with this recipe; the error says which number does not divide.
Result<> check_mesh(const Recipe& recipe, const model::Shape& shape, const plan::Mesh& mesh);

// Sequences that a rank computes at once: as given, or the most that one pass should take.
std::int64_t microbatch_of(const Recipe& recipe, const plan::Mesh& mesh);

}  // namespace tutti::recipe
