#include "serve/cuda/model.hpp"

#include <array>
#include <cstdio>

#include "serve/cuda/choosing.hpp"
#include "serve/cuda/resident.hpp"
#include "serve/cuda/steps.hpp"

namespace tutti::serve::cuda {
namespace {

class CudaModel final : public Model {
 public:
  CudaModel(std::unique_ptr<Resident> resident, std::unique_ptr<Steps> steps,
            std::unique_ptr<Choosing> choosing)
      : resident_(std::move(resident)), steps_(std::move(steps)), choosing_(std::move(choosing)) {}

  const Limits& limits() const override { return resident_->limits; }

  Result<> step(std::span<const Chunk> chunks) override { return steps_->run(chunks, choosing_->places()); }

  Result<std::vector<Chosen>> choose(std::span<const Choice> choices) override {
    if (auto asked = ask(choices); !asked) return std::move(asked).error();
    return answer();
  }

  bool works_ahead() const override { return true; }

  Result<> ask(std::span<const Choice> choices) override { return choosing_->ask(choices); }
  bool has_answer() override { return choosing_->has_answer(); }
  Result<std::vector<Chosen>> answer() override { return choosing_->answer(); }

  Result<std::vector<float>> logits(std::int32_t row) override { return choosing_->logits(row); }

  std::string describe() const override {
    const Options& options = resident_->options;
    const MemoryPlan& plan = resident_->plan;
    std::array<char, 160> text{};
    std::snprintf(text.data(), text.size(), "%s, %s weights %.1f GB, cache of %lld tokens %.1f GB%s%s",
                  resident_->device_name.c_str(),
                  options.is_fp8               ? "fp8"
                  : options.type == Type::bf16 ? "bf16"
                                               : "f32",
                  static_cast<double>(plan.weights_bytes) / 1e9,
                  static_cast<long long>(plan.blocks) * block_positions,
                  static_cast<double>(plan.cache_bytes) / 1e9,
                  steps_->forward().attends_fast() ? "" : ", plain attention",
                  steps_->overlaps() ? "" : ", kernels one after the other");
    return text.data();
  }

 private:
  // Each uses those before it.
  std::unique_ptr<Resident> resident_;
  std::unique_ptr<Steps> steps_;
  std::unique_ptr<Choosing> choosing_;
};

}  // namespace

int devices() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return 0;
  }
  return count;
}

Result<std::unique_ptr<Model>> make_model(const model::Shape& shape, const Options& options,
                                          const ReadRows& read, const ReadStored& stored) {
  if (auto fine = model::check(shape); !fine) return std::move(fine).error();
  if (auto fine = check_split(shape, part_of(options).count); !fine) return std::move(fine).error();
  auto resident = make_resident(shape, options, read, stored);
  if (!resident) return std::move(resident).error();
  auto steps = Steps::make(**resident);
  if (!steps) return std::move(steps).error();
  auto choosing = Choosing::make(**resident, **steps);
  if (!choosing) return std::move(choosing).error();
  return std::unique_ptr<Model>(
      std::make_unique<CudaModel>(std::move(*resident), std::move(*steps), std::move(*choosing)));
}

}  // namespace tutti::serve::cuda
