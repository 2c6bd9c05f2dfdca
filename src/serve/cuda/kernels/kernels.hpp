// The arithmetic of a step on a GPU: everything but the large matrix products. A call only launches; kernels
// of one queue run in the order of their launches. Sums are in f32, and nothing is added by atomics: same
// input, same bits. Plain CUDA; what a launch refuses is left for cudaGetLastError(). Any thread.
//
// A matrix is rows × columns, row after row, each row a whole number of `row_elements`; what is beyond a
// row's own numbers is zero. A pointer to void has elements of the call's type; vectors (norms, biases) are
// f32 always.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti::serve::cuda {

enum class Type { f32, bf16 };

constexpr std::int64_t row_elements = 64;
constexpr std::int32_t block_positions = 16;  // of a block of keys and values

// Where launches go. `overlaps`: a kernel may start while the one before it ends, and fetch its weights
// meanwhile.
struct Queue {
  void* stream = nullptr;  // a cudaStream_t
  bool overlaps = false;
};

// The tokens of a step, on the device. A position of -1 is a token of nobody: it is computed and kept
// nowhere.
struct Tokens {
  std::int32_t count = 0;
  const std::int32_t* token = nullptr;  // -1 - n: the n-th of those that were chosen before
  const std::int32_t* position = nullptr;
  const std::int32_t* table_at = nullptr;  // where the blocks of its sequence begin in `tables`
  const std::int32_t* tables = nullptr;
  const std::int32_t* adapter = nullptr;  // 0: none
};

// Keys and values of one layer: for each block and head the keys of its positions, then the values.
struct Cache {
  void* data = nullptr;
  std::int32_t kv_heads = 0;
  std::int32_t head_size = 0;
};

// ---- embed.cu

// stream = the embedding of each token, and of its position if those are learned; else the cosines and sines
// of its position.
struct Embed {
  Type type = Type::f32;
  Tokens tokens;
  const std::int32_t* chosen = nullptr;  // by the step before
  std::int64_t columns = 0;              // with the padding
  const void* embedding = nullptr;
  const void* positions = nullptr;      // null: they are turned
  const double* frequencies = nullptr;  // of each pair, if they are turned
  double factor = 1;                    // of their cosines and sines
  std::int32_t pairs = 0;
  float* stream = nullptr;
  float* cosines = nullptr;  // tokens × pairs
  float* sines = nullptr;
};
void embed(const Embed& embed, const Queue& queue);

// ---- norm.cu

struct Norm {
  std::int64_t columns = 0;  // without the padding
  float epsilon = 0;
  const float* scale = nullptr;
  const float* bias = nullptr;  // null: an RMS norm
};

// out[row] = norm(stream[rows[row]]); then stream += added, if there is something.
struct NormRows {
  Type type = Type::f32;
  std::int64_t count = 0;
  std::int64_t stride = 0;  // of stream and out
  Norm norm;
  float* stream = nullptr;
  const std::int32_t* rows = nullptr;  // null: all, in their order
  const float* added = nullptr;
  void* out = nullptr;
};
void norm_rows(const NormRows& norm, const Queue& queue);

// sums = the sum of the rows, in their order, added to what is there where `adds`.
struct SumRows {
  std::int64_t count = 0;
  std::int64_t stride = 0;
  const float* rows = nullptr;
  double* sums = nullptr;
  bool adds = false;
};
void sum_rows(const SumRows& sum, const Queue& queue);

// ---- place.cu

// What becomes of a row of queries, keys and values before attention: bias, norm of each head, turning.
struct Turn {
  std::int32_t heads = 0;
  std::int32_t kv_heads = 0;
  std::int32_t head_size = 0;
  std::int64_t stride = 0;  // of a row of qkv: queries, keys, values
  const float* bias = nullptr;
  const float* query_norm = nullptr;
  const float* key_norm = nullptr;
  float epsilon = 0;
  const float* cosines = nullptr;  // null: not turned
  const float* sines = nullptr;
};

// Queries are turned where they are, keys and values go into their blocks.
struct Place {
  Type type = Type::f32;
  Tokens tokens;
  std::int32_t first = 0;  // the tokens from here on
  Turn turn;
  void* qkv = nullptr;
  Cache cache;
};
void place(const Place& place, const Queue& queue);

// ---- attention_*.cu

struct Attention {
  Type type = Type::f32;
  Tokens tokens;
  Turn turn;
  void* qkv = nullptr;
  Cache cache;
  std::int32_t window = 0;  // 0: all
  void* out = nullptr;
  std::int64_t out_stride = 0;
};

// Of any head size, after place(): a block of threads a token and head, from token `first` on.
void attend_plainly(const Attention& attention, std::int32_t first, const Queue& queue);

// What the two fast ones below can do.
bool attends_fast(Type type, std::int32_t head_size, std::int32_t heads, std::int32_t kv_heads);

// The first `rows` tokens, each the last of a sequence of its own, place() included. The context is split
// into at most `splits`, and what each has found is put together by the last one.
struct Splits {
  std::int32_t rows = 0;
  std::int32_t splits = 1;
  bool by_one_warp = false;          // each of them, for heads of 64; else several warps share one
  float* partial = nullptr;          // partial_floats()
  std::uint32_t* arrived = nullptr;  // rows × heads, zeros before and after
};
// The sums of a head, its largest score and its total, of each part.
constexpr std::int64_t partial_floats(std::int64_t rows, std::int64_t splits, std::int64_t heads,
                                      std::int64_t head_size) {
  return rows * splits * heads * (head_size + 2);
}
void attend_one(const Attention& attention, const Splits& splits, const Queue& queue);

// Tokens side by side of one sequence, after place().
struct Tile {
  std::int32_t first = 0;
  std::int32_t count = 0;
};
// The most tokens of a tile.
std::int32_t tile_tokens(std::int32_t head_size, std::int32_t heads, std::int32_t kv_heads);
void attend_tiles(const Attention& attention, const Tile* tiles, std::int32_t count, const Queue& queue);

// ---- few.cu: matrix products of a few rows, in bf16, at the speed of memory

constexpr std::int32_t few_rows_max = 4;  // beyond, the library's products are quicker (measured on an H200)
// With weights of fp8, eight rows at a time. Beyond, the matrix is widened first: as codes it is read once,
// as bf16 written and read (measured there: 16 rows take 1.9 ms as codes, 32 take 3.2, and 64 widened 2.3).
constexpr std::int32_t few_fp8_rows_max = 16;

enum class Activation { none, gelu, gelu_tanh, silu };

struct FewProduct {
  std::int32_t rows = 0;
  // From bf16 rows, or a norm of the stream's.
  const void* values = nullptr;
  const float* stream = nullptr;
  Norm norm;
  std::int64_t columns = 0;  // with the padding
  // A matrix of bf16, `features` × columns, a multiple of 16; or of fp8, with a scale for each feature.
  const void* weights = nullptr;
  const float* scales = nullptr;  // null: bf16
  std::int64_t features = 0;
  const float* bias = nullptr;
  // One of: rows of bf16, numbers that are added to the stream, or logits.
  void* out = nullptr;
  float* added_to = nullptr;
  float* floats = nullptr;
  std::int64_t out_stride = 0;
  // Of `out` alone: bent, and multiplied with the feature that stands half of all features behind it.
  Activation activation = Activation::none;
  bool gated = false;
};
// Whether so many rows are few, and a row of so many columns fits into the memory of a multiprocessor.
bool fits_few(std::int32_t rows, std::int64_t columns, bool is_fp8 = false);
void multiply_few(const FewProduct& product, const Queue& queue);

// ---- widen.cu

// A matrix of fp8 as one of bf16, for products of many rows.
struct Widen {
  const void* codes = nullptr;
  const float* scales = nullptr;  // of each row
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  void* out = nullptr;
};
void widen(const Widen& widen, const Queue& queue);

// ---- activate.cu

// out = activation(wide + bias), times the second half of wide where it is gated.
struct Activate {
  Type type = Type::f32;
  Activation activation = Activation::none;
  bool gated = false;
  std::int64_t rows = 0;
  std::int64_t width = 0;  // with the padding: of out, and of each half of wide
  const float* bias = nullptr;
  const void* wide = nullptr;
  void* out = nullptr;
};
void activate(const Activate& activate, const Queue& queue);

// ---- experts.cu

constexpr std::int32_t experts_max = 4096;
constexpr std::int32_t experts_chosen_max = 64;

// Which experts a token goes to. Its places are `chosen` side by side; an expert's places are rows side by
// side.
struct Routing {
  std::int32_t tokens = 0;
  std::int32_t experts = 0;
  std::int32_t chosen = 0;
  bool normalized = true;
  std::int32_t* place_expert = nullptr;  // tokens × chosen
  float* place_weight = nullptr;
  std::int32_t* place_row = nullptr;
  std::int32_t* row_place = nullptr;
  std::int32_t* expert_first = nullptr;  // experts + 1
};
struct Route {
  Type type = Type::f32;
  Routing routing;
  std::int64_t columns = 0;
  const void* values = nullptr;   // tokens × columns
  const float* router = nullptr;  // experts × columns
  float* scores = nullptr;        // tokens × experts
};
void route(const Route& route, const Queue& queue);

// The product of each expert with its rows.
struct ExpertProduct {
  Type type = Type::f32;
  Routing routing;
  std::int64_t columns = 0;
  const void* values = nullptr;
  bool by_token = false;  // the rows of `values` are tokens, else places in the order of experts
  const void* const* weights = nullptr;  // on the device, one of each expert: features × columns
  const float* const* scales = nullptr;  // of each feature of each expert: they are of fp8; or null
  const float* const* biases = nullptr;  // or null
  std::int64_t features = 0;
  void* out = nullptr;  // a row a place
};
void multiply_experts(const ExpertProduct& product, const Queue& queue);

// stream of each token += what its experts say, by their weights.
struct Mix {
  Type type = Type::f32;
  Routing routing;
  std::int64_t columns = 0;
  const void* out = nullptr;
  float* stream = nullptr;
};
void mix(const Mix& mix, const Queue& queue);

// ---- lora.cu

constexpr std::int32_t lora_parts_max = 3;  // of a product

// What an adapter adds to each part of a product: `rank` rows of the product's columns, and `rank` rows of
// the part's features. Null: nothing.
struct LoraChange {
  const void* shrink[lora_parts_max] = {};
  const void* expand[lora_parts_max] = {};
  std::int32_t rank = 0;
};

// Each row of a product += what its adapter makes of the row of values.
struct LoraProduct {
  Type type = Type::f32;
  std::int32_t rows = 0;
  const std::int32_t* adapter = nullptr;  // of each row; 0: it stays as it is
  const LoraChange* changes = nullptr;    // on the device, of each adapter; the first is nobody's
  std::int32_t rank_max = 0;
  std::int64_t columns = 0;  // with the padding
  const void* values = nullptr;
  std::int32_t parts = 1;
  std::int64_t first_feature[lora_parts_max] = {};  // in a row of what is added to
  std::int64_t features[lora_parts_max] = {};
  float* shrunk = nullptr;  // rows × parts × rank_max
  // One of: rows of the type, or the stream.
  void* out = nullptr;
  float* added_to = nullptr;
  std::int64_t out_stride = 0;
};
void add_lora(const LoraProduct& product, const Queue& queue);

// ---- choose.cu

struct LogitRows {
  const float* data = nullptr;
  std::int64_t stride = 0;
  std::int32_t vocabulary = 0;
};
// The largest of each row, of equal ones the first: steps 1 and 5 of serve/batch/choose.hpp.
void choose_largest(const LogitRows& logits, std::int32_t rows, std::int32_t* tokens, const Queue& queue);

// Steps 1 and 6 to 8 of it.
struct Sample {
  double uniform = 0;
  std::int32_t row = 0;
  float temperature = 1;
  std::int32_t top_k = 0;
  float top_p = 1;
  float min_p = 0;
};
void sample(const LogitRows& logits, const Sample* samples, std::int32_t count, std::int32_t* tokens,
            const Queue& queue);

}  // namespace tutti::serve::cuda
