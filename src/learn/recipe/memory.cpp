#include "learn/recipe/memory.hpp"

#include <algorithm>

#include "base/units.hpp"
#include "learn/plan/schedule.hpp"

namespace tutti::recipe {
namespace {

// What a process on a GPU has before its first tensor: the CUDA context, and the handles and kernels of
// cuBLAS and cuDNN with their workspaces.
constexpr std::int64_t context_bytes = std::int64_t{768} << 20;
// NCCL's buffers and channels, of each of the communicators of a rank.
constexpr std::int64_t communicator_bytes = std::int64_t{200} << 20;
// The allocator of libtorch hands out blocks of sizes that were asked for before: what lies between them.
constexpr std::int64_t fragments_per_thousand = 40;

// Logits that are there at a time.
constexpr std::int64_t logits_max_host = std::int64_t{1} << 22;
constexpr std::int64_t logits_max_gpu = std::int64_t{1} << 29;

std::int64_t quotient_up(std::int64_t count, std::int64_t by) { return (count + by - 1) / by; }

// The elements of a rank's tensors: of all its units, and of the largest one.
struct Elements {
  std::int64_t all = 0;
  std::int64_t largest = 0;
};

std::int64_t elements_of(const model::Unit& unit, std::int64_t slices) {
  std::int64_t sum = 0;
  for (const model::Tensor& tensor : unit.tensors) {
    const std::int64_t here = tensor.split == model::Split::whole ? 1 : slices;
    sum += quotient_up(tensor.elements(), here);
  }
  return sum;
}

Elements elements_of_stage(const model::Shape& shape, const plan::Mesh& mesh, int parts, int stage) {
  const auto units = model::units(shape);
  Elements elements;
  const auto add = [&](const model::Unit& unit) {
    const std::int64_t count = elements_of(unit, mesh.tensor);
    elements.all += count;
    elements.largest = std::max(elements.largest, count);
  };
  for (int part = 0; part < parts; ++part) {
    const plan::Span span = plan::span_of(static_cast<int>(shape.layers), mesh.pipeline, parts, stage, part);
    if (span.has_embedding) add(units.front());
    for (int layer = span.first_layer; layer < span.first_layer + span.layers; ++layer) {
      add(units.at(static_cast<std::size_t>(layer) + 1));
    }
    if (span.has_head) add(units.back());
    if (span.has_head && shape.tied && mesh.pipeline > 1) add(units.front());
  }
  return elements;
}

// What the feed-forward part of a layer keeps for each row, the larger of its kinds: the hidden layer before
// and after its activation, and with experts also a row's copies for each of its experts, before and after.
std::int64_t kept_by_mlp(const model::Shape& shape, std::int64_t slices) {
  const std::int64_t widths = shape.gated ? 3 : 2;
  const std::int64_t one = widths * shape.intermediate / slices;
  const model::Experts& experts = shape.experts;
  if (experts.count == 0) return one;
  const std::int64_t several =
      experts.chosen * (widths * experts.intermediate / slices + 2 * shape.hidden) + 2 * experts.count;
  return std::max(one, several);
}

// What a block keeps of a microbatch for its backward pass.
std::int64_t activations_of_block(const Recipe& r, const model::Shape& shape, const plan::Mesh& mesh,
                                  Place place, bool recompute) {
  const std::int64_t sequences = microbatch_of(r, mesh);
  const std::int64_t rows = sequences * r.context;
  const std::int64_t slices = mesh.tensor;
  if (recompute) return rows * shape.hidden / slices;
  const std::int64_t queries = shape.heads * shape.head_size;
  const std::int64_t kv = shape.kv_heads * shape.head_size;
  std::int64_t elements = 2 * rows * shape.hidden / slices + 2 * rows * shape.hidden;  // norms: in and out
  elements += rows * (queries + 2 * kv) / slices + rows * queries / slices;  // q, k, v; attention's result
  if (shape.qk_norm) elements += rows * (queries + kv) / slices;             // before their norms
  elements += rows * kept_by_mlp(shape, slices);
  // A window is a mask, and only what keeps the probabilities has masks.
  const bool windowed = shape.window > 0 && shape.window < r.context;
  if (place == Place::host || windowed) elements += sequences * shape.heads / slices * r.context * r.context;
  return elements;
}

// What lives while a block's backward pass is computed: the gradients of the MLP's hidden layer and of its
// activation, all rows of the stream as they are gathered, and of queries, keys and values.
std::int64_t temporaries_of_block(const Recipe& r, const model::Shape& shape, const plan::Mesh& mesh) {
  const std::int64_t rows = microbatch_of(r, mesh) * r.context;
  const std::int64_t queries = shape.heads * shape.head_size;
  const std::int64_t kv = shape.kv_heads * shape.head_size;
  return rows * kept_by_mlp(shape, mesh.tensor) + 3 * rows * shape.hidden +
         rows * (queries + 2 * kv) / mesh.tensor;
}

// Groups that a rank is in, the world and that of the checkpoints among them.
std::int64_t communicators_of(const plan::Mesh& mesh) {
  if (mesh.size() == 1) return 0;
  const auto more = [](bool there) { return std::int64_t{there ? 1 : 0}; };
  return 1 + more(mesh.data > 1) + more(mesh.tensor > 1) + 2 * more(mesh.pipeline > 1) +
         more(mesh.tensor * mesh.pipeline > 1);
}

Memory memory_of_stage(const Recipe& r, const model::Shape& shape, const plan::Mesh& mesh, Place place,
                       int stage) {
  const Elements elements = elements_of_stage(shape, mesh, static_cast<int>(r.interleave), stage);
  const std::int64_t size = r.precision == "bf16" ? 2 : 4;
  const std::int64_t replicas = mesh.data;
  const std::int64_t microbatches = r.batch / mesh.data / microbatch_of(r, mesh);
  constexpr std::int64_t buffers = 3;  // units that are gathered or reduced at a time
  const bool half = size == 2;
  Memory memory;
  memory.weights =
      r.zero == 3 ? elements.all * size / replicas + buffers * elements.largest * size : elements.all * size;
  if (r.zero >= 2) {
    // Reduced in f32, whatever they were computed in.
    const std::int64_t reduced = half && replicas > 1 ? size + 4 : size;
    memory.gradients = elements.all * 4 / replicas + buffers * elements.largest * reduced;
  } else {
    const bool apart = half && (microbatches > 1 || mesh.size() > 1);
    memory.gradients = elements.all * size + (apart ? elements.all * 4 : 0);
  }
  memory.optimizer = elements.all * (half ? 12 : 8) / (r.zero >= 1 ? replicas : 1);

  const std::int64_t stages_after = mesh.pipeline - stage;
  const std::int64_t held =
      std::min(microbatches * r.interleave,
               r.interleave == 1 ? stages_after : 2 * stages_after + r.interleave * mesh.pipeline);
  const std::int64_t blocks = quotient_up(shape.layers, mesh.pipeline * r.interleave);
  memory.activations = held * blocks * activations_of_block(r, shape, mesh, place, r.recompute) * size;
  if (r.recompute) memory.activations += activations_of_block(r, shape, mesh, place, false) * size;

  if (mesh.pipeline > 1) {
    const std::int64_t message = microbatch_of(r, mesh) * r.context * shape.hidden / mesh.tensor * size;
    const std::int64_t sent = plan::sends_under_way_max(mesh.pipeline, static_cast<int>(r.interleave));
    constexpr std::int64_t received = 4;  // one in use and one to come, in each direction
    memory.messages = (std::min(sent, 2 * microbatches * r.interleave) + received) * message;
  }

  if (stage == mesh.pipeline - 1) {
    const std::int64_t rows = microbatch_of(r, mesh) * r.context;
    const std::int64_t columns = quotient_up(shape.vocabulary, mesh.tensor);
    const std::int64_t at_a_time = quotient_up(rows, logit_pieces(rows, columns, place)) * columns;
    memory.logits = (at_a_time + 2 * rows * shape.hidden) * size;
  }
  // Weights and both moments in f32; the replicas save a part each, whatever `zero` is.
  (place == Place::host ? memory.checkpoint : memory.on_host) = quotient_up(elements.all, replicas) * 12;
  memory.overhead = temporaries_of_block(r, shape, mesh) * size;
  if (place == Place::gpu) {
    memory.overhead += memory.total() * fragments_per_thousand / 1000 + context_bytes +
                       communicators_of(mesh) * communicator_bytes;
  }
  return memory;
}

}  // namespace

std::string Memory::text() const {
  const auto part = [](std::int64_t bytes, const char* name) {
    return format_bytes(Bytes(bytes)) + " " + name;
  };
  return part(weights, "weights") + ", " + part(gradients, "gradients") + ", " +
         part(optimizer, "optimizer") + ", " + part(activations, "activations") + ", " +
         part(logits, "logits") + ", " + (messages > 0 ? part(messages, "messages") + ", " : "") +
         (checkpoint > 0 ? part(checkpoint, "checkpoint") + ", " : "") + part(overhead, "overhead");
}

std::int64_t logit_pieces(std::int64_t rows, std::int64_t columns, Place place) {
  const std::int64_t at_a_time = place == Place::host ? logits_max_host : logits_max_gpu;
  return std::clamp<std::int64_t>(quotient_up(rows * columns, at_a_time), 1, rows);
}

Memory memory_of(const Recipe& given, const model::Shape& shape, const plan::Mesh& mesh, Place place) {
  const Recipe recipe = resolved(given, place);
  Memory most;
  std::int64_t on_host = 0;
  for (int stage = 0; stage < mesh.pipeline; ++stage) {
    const Memory one = memory_of_stage(recipe, shape, mesh, place, stage);
    on_host = std::max(on_host, one.on_host);
    if (one.total() > most.total()) most = one;
  }
  most.on_host = on_host;
  return most;
}

}  // namespace tutti::recipe
