#include "serve/cuda/load.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "learn/safetensors/types.hpp"
#include "serve/cuda/device.hpp"
#include "serve/cuda/sizes.hpp"

namespace tutti::serve::cuda {
namespace {

constexpr unsigned threads_max = 16;

// One thread's way to the device: while one memory is copied, the other is filled.
class Lane {
 public:
  static Result<Lane> make(std::size_t bytes) {
    Lane lane;
    auto stream = make_stream();
    if (!stream) return std::move(stream).error();
    lane.stream_ = std::move(*stream);
    for (Half& half : lane.halves_) {
      auto memory = reserve_pinned(bytes, "the weights on their way");
      if (!memory) return std::move(memory).error();
      half.memory = std::move(*memory);
      auto event = make_event();
      if (!event) return std::move(event).error();
      half.copied = std::move(*event);
    }
    return lane;
  }

  Result<> load(const WeightPiece& piece, const PieceReader& reader) {
    Half& half = halves_[turn_ ^= 1U];
    if (auto done = checked(cudaEventSynchronize(half.copied.get()), "copying weights"); !done) return done;
    if (auto done = fill_piece(piece, reader, {half.memory.get(), bytes_of_piece(piece)}, floats_); !done)
      return done;
    const std::size_t bytes = bytes_of_rows(piece);
    if (auto done = copy(piece.to, half.memory.get(), bytes); !done) return done;
    if (piece.is_fp8) {
      auto done = copy(piece.scales, half.memory.get() + bytes, bytes_of_piece(piece) - bytes);
      if (!done) return done;
    }
    return checked(cudaEventRecord(half.copied.get(), stream_.get()), "copying weights");
  }

  Result<> finish() const { return checked(cudaStreamSynchronize(stream_.get()), "copying weights"); }

 private:
  struct Half {
    PinnedMemory memory;
    OwnEvent copied;
  };

  Result<> copy(void* to, const std::byte* from, std::size_t bytes) const {
    return checked(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_.get()),
                   "copying weights");
  }

  OwnStream stream_;
  std::array<Half, 2> halves_;
  unsigned turn_ = 0;
  std::vector<float> floats_;
};

}  // namespace

Result<> load_pieces(std::span<const WeightPiece> pieces, const PieceReader& reader, int device) {
  std::size_t bytes_max = 1;
  for (const WeightPiece& piece : pieces) bytes_max = std::max(bytes_max, bytes_of_piece(piece));
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;
  std::optional<Error> problem;
  const auto work = [&]() -> Result<> {
    if (auto done = checked(cudaSetDevice(device), "choosing the device"); !done) return done;
    auto lane = Lane::make(bytes_max);
    if (!lane) return std::move(lane).error();
    for (std::size_t at = next++; at < pieces.size(); at = next++) {
      if (auto done = lane->load(pieces[at], reader); !done) return done;
    }
    return lane->finish();
  };
  const unsigned count = std::clamp(std::thread::hardware_concurrency(), 1U, threads_max);
  {
    std::vector<std::jthread> threads;
    for (unsigned at = 0; at < count; ++at) {
      threads.emplace_back([&] {
        auto done = work();
        if (done) return;
        next = pieces.size();  // the others need not go on
        const std::lock_guard lock(mutex);
        if (!problem) problem = std::move(done).error();
      });
    }
  }
  if (problem) return *std::move(problem);
  return {};
}

Result<> load_adapters(const AdapterLayout& layout, const model::Shape& shape, Type type,
                       std::span<const lora::Adapter> adapters) {
  const auto narrow = type == Type::bf16 ? safetensors::Type::bf16 : safetensors::Type::f32;
  for (const AdapterPiece& piece : layout.pieces()) {
    const auto floats = read_piece(piece, shape, adapters);
    if (!floats) return floats.error();
    std::vector<std::byte> bytes(floats->size() * bytes_of(type));
    safetensors::from_floats(*floats, narrow, bytes);
    auto done =
        checked(cudaMemcpy(piece.to, bytes.data(), bytes.size(), cudaMemcpyHostToDevice), "copying adapters");
    if (!done) return done;
  }
  for (const AdapterLayout::Table& table : layout.tables()) {
    auto done = checked(cudaMemcpy(table.to, table.changes.data(), table.changes.size() * sizeof(LoraChange),
                                   cudaMemcpyHostToDevice),
                        "copying adapters");
    if (!done) return done;
  }
  // Such a copy returns before it has arrived, and the model's own queue waits for nobody.
  return checked(cudaDeviceSynchronize(), "copying adapters");
}

Result<> load_lists(const model::Shape& shape, const Weights& weights) {
  const auto copy = [](void* to, const void* from, std::size_t bytes) {
    return checked(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), "copying weights");
  };
  if (weights.frequencies != nullptr) {
    const std::vector<double> speeds = model::frequencies(shape.rope, shape.head_size);
    if (auto done = copy(weights.frequencies, speeds.data(), speeds.size() * sizeof(double)); !done)
      return done;
  }
  const auto copy_list = [&](auto* to, const auto& each, const auto& of) -> Result<> {
    if (to == nullptr || each.empty()) return {};
    std::vector<std::remove_reference_t<decltype(*to)>> list;
    list.reserve(each.size());
    for (const FeedForwardWeights& expert : each) list.push_back(of(expert));
    return copy(to, list.data(), list.size() * sizeof(list.front()));
  };
  for (const LayerWeights& layer : weights.layers) {
    const ExpertWeights& experts = layer.experts;
    using Expert = FeedForwardWeights;
    for (auto done :
         {copy_list(experts.up, experts.each, [](const Expert& one) { return one.up.data; }),
          copy_list(experts.down, experts.each, [](const Expert& one) { return one.down.data; }),
          copy_list(experts.up_scales, experts.each, [](const Expert& one) { return one.up.scales; }),
          copy_list(experts.down_scales, experts.each, [](const Expert& one) { return one.down.scales; }),
          copy_list(experts.up_bias, experts.each, [](const Expert& one) { return one.up_bias; }),
          copy_list(experts.down_bias, experts.each, [](const Expert& one) { return one.down_bias; })}) {
      if (!done) return done;
    }
  }
  return {};
}

}  // namespace tutti::serve::cuda
