// What goes row by row: SwiGLU, rotary positions, embeddings.
#include "learn/train/cuda/device_code.hpp"

namespace tutti::train::cuda {
namespace {

template <class T>
struct SwigluForward {
  const T* x;
  T* y;
  std::int64_t columns;
  bool aligned;

  __device__ void operator()(std::int64_t row, std::int64_t column) const {
    const T* const line = x + row * 2 * columns;
    const Chunk<T> gate_raw = fetch(line, column, columns, aligned);
    const Chunk<T> up_raw = fetch(line + columns, column, columns, aligned);
    const Values gate = widen(gate_raw);
    Values out = widen(up_raw);
#pragma unroll
    for (int i = 0; i < width; ++i) out.at[i] *= gate.at[i] * sigmoid(gate.at[i]);
    write(y + row * columns, column, columns, aligned, out);
  }
};

template <class T>
struct SwigluBackward {
  const T* x;
  const T* dy;
  T* dx;
  std::int64_t columns;
  bool aligned;

  __device__ void operator()(std::int64_t row, std::int64_t column) const {
    const T* const line = x + row * 2 * columns;
    const Chunk<T> gate_raw = fetch(line, column, columns, aligned);
    const Chunk<T> up_raw = fetch(line + columns, column, columns, aligned);
    const Chunk<T> dy_raw = fetch(dy + row * columns, column, columns, aligned);
    const Values gate = widen(gate_raw);
    const Values up = widen(up_raw);
    const Values gradient = widen(dy_raw);
    Values dgate;
    Values dup;
#pragma unroll
    for (int i = 0; i < width; ++i) {
      const float s = sigmoid(gate.at[i]);
      dgate.at[i] = gradient.at[i] * up.at[i] * s * (1.0F + gate.at[i] * (1.0F - s));
      dup.at[i] = gradient.at[i] * gate.at[i] * s;
    }
    T* const out = dx + row * 2 * columns;
    write(out, column, columns, aligned, dgate);
    write(out + columns, column, columns, aligned, dup);
  }
};

// A row's columns are here the first halves of its heads, one behind the other.
template <class T>
struct Rotate {
  Rotation r;
  bool aligned;

  __device__ const T* source(std::int64_t row, std::int64_t head) const {
    if (head < r.heads) return static_cast<const T*>(r.q) + row * r.q_stride + head * r.head_size;
    head -= r.heads;
    const bool key = head < r.kv_heads;
    return static_cast<const T*>(key ? r.k : r.v) + row * r.kv_stride +
           (key ? head : head - r.kv_heads) * r.head_size;
  }

  __device__ void operator()(std::int64_t row, std::int64_t column) const {
    const auto half = static_cast<int>(r.head_size / 2);
    const std::int64_t stride = (r.heads + 2 * r.kv_heads) * r.head_size;
    // Where halves are no multiple of a chunk, its elements may belong to two heads.
    for (int i = 0, taken = 0; i < width; i += taken) {
      const int head = (static_cast<int>(column) + i) / half;
      const int begin = (static_cast<int>(column) + i) % half;
      taken = min(width - i, half - begin);
      if (head >= r.heads + (r.v != nullptr ? 2 : 1) * r.kv_heads) return;
      T* const out = static_cast<T*>(r.qkv) + row * stride + head * r.head_size;
      turn(row, source(row, head), out, begin, begin + taken, head < r.heads + r.kv_heads);
    }
  }

  __device__ void turn(std::int64_t row, const T* in, T* out, int begin, int end, bool turned) const {
    const std::int64_t half = r.head_size / 2;
    const Chunk<T> a_raw = fetch(in, begin, end, aligned);
    const Chunk<T> b_raw = fetch(in + half, begin, end, aligned);
    if (r.angles == nullptr || !turned) {
      put(out, begin, end, aligned, a_raw);
      put(out + half, begin, end, aligned, b_raw);
      return;
    }
    const float* const angles = r.angles + row % r.length * r.head_size;
    const Values cosine = read(angles, begin, end, aligned);
    const Values sine = read(angles + half, begin, end, aligned);
    const float sign = r.inverse ? -1.0F : 1.0F;
    const Values a = widen(a_raw);
    const Values b = widen(b_raw);
    Values first;
    Values second;
#pragma unroll
    for (int i = 0; i < width; ++i) {
      first.at[i] = a.at[i] * cosine.at[i] - sign * b.at[i] * sine.at[i];
      second.at[i] = b.at[i] * cosine.at[i] + sign * a.at[i] * sine.at[i];
    }
    write(out, begin, end, aligned, first);
    write(out + half, begin, end, aligned, second);
  }
};

template <class T>
struct Embed {
  Embedding e;
  const T* table;
  T* out;
  bool aligned;

  __device__ void operator()(std::int64_t row, std::int64_t column) const {
    const std::int64_t columns = e.size.columns;
    const std::int64_t entry = e.tokens[row] - e.first;
    // Nothing is read of a table that does not have the entry.
    const std::int64_t end = entry >= 0 && entry < e.entries ? columns : 0;
    const Chunk<T> chunk = fetch(table + entry * columns, column, end, aligned);
    put(out + row * columns, column, columns, aligned, chunk);
  }
};

template <class T>
struct AddPositions {
  Positions p;
  const T* table;
  T* x;
  bool aligned;

  __device__ void operator()(std::int64_t row, std::int64_t column) const {
    const std::int64_t columns = p.size.columns;
    T* const line = x + row * columns;
    Values values = read(line, column, columns, aligned);
    const Values more = read(table + (p.begin + row) % p.length * columns, column, columns, aligned);
#pragma unroll
    for (int i = 0; i < width; ++i) values.at[i] += more.at[i];
    write(line, column, columns, aligned, values);
  }
};

// Of all rows that stand at the position of row `start`.
template <class T>
struct AddPositionsBackward {
  Positions p;
  const T* dx;
  T* gradient;
  bool aligned;

  __device__ void operator()(std::int64_t start, std::int64_t column) const {
    const std::int64_t columns = p.size.columns;
    T* const line = gradient + (p.begin + start) % p.length * columns;
    Values sum = read(line, column, columns, aligned);
#pragma unroll 4
    for (std::int64_t row = start; row < p.size.rows; row += p.length) {
      const Values more = read(dx + row * columns, column, columns, aligned);
#pragma unroll
      for (int i = 0; i < width; ++i) sum.at[i] += more.at[i];
    }
    write(line, column, columns, aligned, sum);
  }
};

constexpr int warps = block_threads / warp;
constexpr int batch = 4;  // rows whose loads are under way at once, for each warp

// Where the run of equal tokens ends that begins at `first`: in steps twice as long each time, and back.
__device__ std::int64_t end_of_run(const std::int64_t* tokens, std::int64_t rows, std::int64_t first) {
  const std::int64_t token = tokens[first];
  std::int64_t last = first;
  std::int64_t step = 1;
  const auto reaches = [&] { return last + step < rows && tokens[last + step] == token; };
  while (reaches()) {
    last += step;
    step *= 2;
  }
  while (step > 1) {
    step /= 2;
    if (reaches()) last += step;
  }
  return last + 1;
}

// The blocks of the first of a run of equal tokens add up their rows, every eighth of them in each warp.
template <class T>
__global__ void __launch_bounds__(block_threads)
    embed_backward_kernel(Embedding e, const std::int64_t* order, const T* dout, T* gradient, bool aligned) {
  const std::int64_t first = blockIdx.x;
  const std::int64_t entry = e.tokens[first] - e.first;
  if (entry < 0 || entry >= e.entries || (first > 0 && e.tokens[first - 1] == e.tokens[first])) return;
  const std::int64_t end = end_of_run(e.tokens, e.size.rows, first);
  const std::int64_t columns = e.size.columns;
  const std::int64_t base = static_cast<std::int64_t>(blockIdx.y) * warp * width;
  const int lane = static_cast<int>(threadIdx.x) % warp;
  const int own_warp = static_cast<int>(threadIdx.x) / warp;
  Values sum{};
  for (std::int64_t at = first + own_warp; at < end; at += batch * warps) {
    Chunk<T> raw[batch];
#pragma unroll
    for (int i = 0; i < batch; ++i) {
      if (at + i * warps >= end) continue;
      raw[i] = fetch(dout + order[at + i * warps] * columns, base + lane * width, columns, aligned);
    }
#pragma unroll
    for (int i = 0; i < batch; ++i) {
      if (at + i * warps >= end) continue;
      const Values more = widen(raw[i]);
#pragma unroll
      for (int j = 0; j < width; ++j) sum.at[j] += more.at[j];
    }
  }
  __shared__ float sums[warps][warp * width];
#pragma unroll
  for (int i = 0; i < width; ++i) sums[own_warp][lane * width + i] = sum.at[i];
  __syncthreads();
  static_assert(warp * width == block_threads, "a thread adds one column");
  if (base + threadIdx.x >= columns) return;
  T* const target = gradient + entry * columns + base + threadIdx.x;
  float total = static_cast<float>(*target);
#pragma unroll
  for (int part = 0; part < warps; ++part) total += sums[part][threadIdx.x];
  *target = static_cast<T>(total);
}

}  // namespace

void swiglu_forward(Type type, Size size, const void* x, void* y, Stream stream) {
  with_type(type, [&](auto value) {
    using T = decltype(value);
    const SwigluForward<T> swiglu{static_cast<const T*>(x), static_cast<T*>(y), size.columns,
                                  rows_aligned(size.columns, {x, y})};
    launch_rows("swiglu", size, swiglu, stream);
  });
}

void swiglu_backward(Type type, Size size, const void* x, const void* dy, void* dx, Stream stream) {
  with_type(type, [&](auto value) {
    using T = decltype(value);
    const SwigluBackward<T> swiglu{static_cast<const T*>(x), static_cast<const T*>(dy), static_cast<T*>(dx),
                                   size.columns, rows_aligned(size.columns, {x, dy, dx})};
    launch_rows("swiglu_backward", size, swiglu, stream);
  });
}

void rotate(const Rotation& r, Stream stream) {
  const bool aligned = r.q_stride % width == 0 && r.kv_stride % width == 0 &&
                       rows_aligned(r.head_size / 2, {r.q, r.k, r.v, r.qkv, r.angles});
  const std::int64_t heads = r.heads + (r.v != nullptr ? 2 : 1) * r.kv_heads;
  with_type(r.type, [&](auto value) {
    launch_rows("rotate", {r.rows, heads * r.head_size / 2}, Rotate<decltype(value)>{r, aligned}, stream);
  });
}

void embed(const Embedding& embedding, const void* table, void* out, Stream stream) {
  with_type(embedding.type, [&](auto value) {
    using T = decltype(value);
    const Embed<T> copy{embedding, static_cast<const T*>(table), static_cast<T*>(out),
                        rows_aligned(embedding.size.columns, {table, out})};
    launch_rows("embed", embedding.size, copy, stream);
  });
}

void embed_backward(const Embedding& embedding, const std::int64_t* order, const void* dout,
                    void* table_gradient, Stream stream) {
  if (embedding.size.rows == 0) return;
  with_type(embedding.type, [&](auto value) {
    using T = decltype(value);
    const dim3 grid(static_cast<unsigned>(embedding.size.rows),
                    blocks_for(embedding.size.columns, warp * width));
    embed_backward_kernel<<<grid, block_threads, 0, static_cast<cudaStream_t>(stream)>>>(
        embedding, order, static_cast<const T*>(dout), static_cast<T*>(table_gradient),
        rows_aligned(embedding.size.columns, {dout}));
  });
  check_launch("embed_backward");
}

void add_positions(const Positions& positions, const void* table, void* x, Stream stream) {
  with_type(positions.type, [&](auto value) {
    using T = decltype(value);
    const AddPositions<T> add{positions, static_cast<const T*>(table), static_cast<T*>(x),
                              rows_aligned(positions.size.columns, {table, x})};
    launch_rows("add_positions", positions.size, add, stream);
  });
}

void add_positions_backward(const Positions& positions, const void* dx, void* table_gradient, Stream stream) {
  const std::int64_t starts = positions.size.rows < positions.length ? positions.size.rows : positions.length;
  with_type(positions.type, [&](auto value) {
    using T = decltype(value);
    const AddPositionsBackward<T> add{positions, static_cast<const T*>(dx), static_cast<T*>(table_gradient),
                                      rows_aligned(positions.size.columns, {dx, table_gradient})};
    launch_rows("add_positions_backward", {starts, positions.size.columns}, add, stream);
  });
}

}  // namespace tutti::train::cuda
