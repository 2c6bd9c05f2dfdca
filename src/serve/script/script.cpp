#include "serve/script/script.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <thread>
#include <vector>

#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/cuda.h>
#include <torch/script.h>

#include "base/files/files.hpp"
#include "base/hash/hash.hpp"
#include "base/text.hpp"
#include "serve/script/tensors.hpp"

namespace tutti::serve {
namespace {

constexpr std::size_t reason_bytes_max = 2'000;
constexpr std::size_t hashed_bytes = std::size_t{1} << 20;  // at a time
constexpr int warm_runs = 3;  // of each size: libtorch looks at the first, compiles in the second

// What happened, without the trace through the program's sources: where those lay is for no client to know.
std::string_view without_trace(std::string_view text) {
  constexpr std::string_view mark = "<--- HERE\n";
  const std::size_t last = text.rfind(mark);
  if (last == std::string_view::npos) return text;
  std::string_view rest = text.substr(last + mark.size());
  while (rest.starts_with(' ') || rest.starts_with('\n')) {
    const std::size_t line = rest.find('\n');
    if (line == std::string_view::npos) return rest;
    rest.remove_prefix(line + 1);
  }
  return rest;
}

std::string reason_of(const std::exception& problem) {
  const auto* own = dynamic_cast<const c10::Error*>(&problem);
  const std::string text = valid_utf8(own != nullptr ? own->what_without_backtrace() : problem.what());
  return std::string(trim(cut_utf8(without_trace(text), reason_bytes_max)));
}

// The device is lost for this process after such an error: another process finds it again.
void end_if_device_is_lost(const std::string& reason) {
  if (reason.find("CUDA error") == std::string::npos) return;
  std::fprintf(stderr, "tutti-worker: %s\n", reason.c_str());
  std::_Exit(1);
}

class Instance {
 public:
  Instance(torch::jit::Module module, const c10::Device& device, std::vector<std::string> outputs)
      : module_(std::move(module)), device_(device), outputs_(std::move(outputs)) {
    if (device.is_cuda())
      stream_ = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
  }

  Result<std::vector<Tensor>> run(const std::vector<Tensor>& inputs) {
    try {
      const c10::InferenceMode inference;
      std::unique_ptr<c10::StreamGuard> on_stream;
      if (stream_) on_stream = std::make_unique<c10::StreamGuard>(*stream_);
      std::vector<c10::IValue> arguments;
      arguments.reserve(inputs.size());
      for (const Tensor& input : inputs) arguments.emplace_back(to_torch(input, device_));
      return from_value(module_.forward(std::move(arguments)), outputs_);
    } catch (const c10::OutOfMemoryError& problem) {
      return failed("there is not enough memory on the device: " + reason_of(problem));
    } catch (const std::bad_alloc&) {
      return failed("there is not enough memory");
    } catch (const std::exception& problem) {
      const std::string reason = reason_of(problem);
      end_if_device_is_lost(reason);
      return invalid("the model could not compute this: " + reason);
    }
  }

 private:
  torch::jit::Module module_;
  const c10::Device device_;
  const std::vector<std::string> outputs_;
  std::optional<c10::Stream> stream_;
};

bool takes_tensor(const c10::Argument& argument) {
  return c10::TensorType::get()->isSubtypeOf(*argument.type());
}

// The inputs by their names, where the signature names none; else whether forward() takes so many.
Result<std::vector<TensorSpec>> inputs_of(const torch::jit::Module& module,
                                          const std::vector<TensorSpec>& given) {
  const auto forward = module.find_method("forward");
  if (!forward) return invalid("it has no forward()");
  const auto& arguments = forward->function().getSchema().arguments();
  std::vector<TensorSpec> inputs = given;
  for (std::size_t at = 1; at < arguments.size(); ++at) {
    const c10::Argument& argument = arguments[at];
    const bool is_needed = !argument.default_value();
    const bool is_wanted = given.empty() ? is_needed : at <= given.size();
    if (is_needed && !is_wanted)
      return invalid("forward() also takes '" + argument.name() + "', which the signature does not name");
    if (!is_wanted) continue;
    if (!takes_tensor(argument))
      return invalid("forward() takes '" + argument.name() + "' of the type " + argument.type()->str() +
                     ", and only tensors can be sent");
    if (given.empty()) inputs.push_back({.name = argument.name()});
  }
  if (given.size() + 1 > arguments.size())
    return invalid("the signature names more inputs than forward() takes");
  if (inputs.empty() || inputs.size() > tensors_max)
    return invalid("forward() takes no tensors, or too many");
  return inputs;
}

// How much is known of what to send it.
enum class Known { nothing, kinds, all };

Known known_of(const std::vector<TensorSpec>& inputs, bool is_batched) {
  Known known = Known::all;
  for (const TensorSpec& spec : inputs) {
    if (!spec.type || !spec.shape || (is_batched && spec.shape->empty())) return Known::nothing;
    const auto first = spec.shape->begin() + (is_batched ? 1 : 0);
    if (std::find(first, spec.shape->end(), any_size) != spec.shape->end()) known = Known::kinds;
  }
  return known;
}

std::vector<Tensor> zeros(const std::vector<TensorSpec>& inputs, std::optional<std::int64_t> rows) {
  std::vector<Tensor> tensors;
  for (const TensorSpec& spec : inputs) {
    Dimensions shape = *spec.shape;
    if (rows) shape.front() = *rows;
    std::replace(shape.begin(), shape.end(), any_size, std::int64_t{1});
    const auto bytes = bytes_of(*spec.type, shape);
    tensors.push_back({spec.name, *spec.type, shape, std::string(bytes ? *bytes : 0, '\0')});
  }
  return tensors;
}

std::vector<std::int64_t> sizes_up_to(std::int64_t rows_max) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t rows = 1; rows < rows_max; rows *= 2) sizes.push_back(rows);
  sizes.push_back(rows_max);
  return sizes;
}

class Loading {
 public:
  Loading(const std::string& path, const ScriptOptions& options)
      : path_(path), options_(options), signature_(options.signature) {}

  Result<remote::Hosted> load() {
    const c10::Device device(options_.device == "cuda" ? c10::Device(c10::kCUDA, 0) : c10::Device(c10::kCPU));
    if (device.is_cuda() && !torch::cuda::is_available())
      return failed("libtorch finds no GPU here").remedy("take --device cpu");
    const int threads =
        std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / options_.instances);
    at::set_num_threads(threads);
    // Batches have many sizes: one compiled program for all of them, in place of one each.
    torch::jit::FusionStrategy any_size_at_all{{torch::jit::FusionBehavior::DYNAMIC, 10}};
    torch::jit::setFusionStrategy(any_size_at_all);
    torch::jit::Module module = torch::jit::load(path_, device);
    module.eval();
    auto inputs = inputs_of(module, signature_.inputs);
    if (!inputs) return std::move(inputs).error();
    signature_.inputs = std::move(*inputs);
    for (const TensorSpec& spec : signature_.outputs) names_.push_back(spec.name);
    for (int nth = 0; nth < options_.instances; ++nth) {
      instances_.push_back(std::make_shared<Instance>(nth == 0 ? module : module.deepcopy(), device, names_));
      // The copy was made on the device's own stream, which the instance's does not wait for.
      if (device.is_cuda()) torch::cuda::synchronize();
      if (auto warm = warm_up(*instances_.back()); !warm) return std::move(warm).error();
    }
    remote::Hosted hosted{{signature_, about(threads)}, {}};
    for (const auto& instance : instances_)
      hosted.lanes.emplace_back(
          [instance](const std::vector<Tensor>& tensors) { return instance->run(tensors); });
    return hosted;
  }

 private:
  bool is_batched() const { return options_.rows_max > 1; }

  std::string about(int threads) const {
    const std::string batches =
        is_batched() ? "batches of up to " + std::to_string(options_.rows_max) + " rows" : "no batches";
    return "TorchScript on " + options_.device + ", " + std::to_string(options_.instances) +
           (options_.instances == 1 ? " instance" : " instances") +
           (options_.device == "cpu"
                ? " of " + std::to_string(threads) + (threads == 1 ? " thread, " : " threads, ")
                : ", ") +
           batches + (is_warm_ ? ", warm" : "");
  }

  Result<> warm_up(Instance& instance) {
    const Known known = known_of(signature_.inputs, is_batched());
    if (known == Known::nothing) return {};
    for (const std::int64_t rows : sizes_up_to(options_.rows_max)) {
      const auto inputs = zeros(signature_.inputs, is_batched() ? std::optional(rows) : std::nullopt);
      for (int again = 0; again < warm_runs; ++again) {
        const auto outputs = instance.run(inputs);
        // Sizes that were guessed prove nothing.
        if (!outputs && known == Known::kinds && outputs.error().code() == ErrorCode::invalid) return {};
        if (!outputs) return Error(outputs.error()).within("zeros of the shapes that the signature names");
        if (auto fits = look_at(*outputs, rows, known); !fits) return fits;
      }
    }
    is_warm_ = true;
    return {};
  }

  // Whether the outputs can be split, and what they are where the signature does not say.
  Result<> look_at(const std::vector<Tensor>& outputs, std::int64_t rows, Known known) {
    if (is_batched()) {
      if (auto split = split_rows(outputs, {rows}); !split) return std::move(split).error();
    }
    if (!signature_.outputs.empty() && !is_outputs_seen_) {
      for (std::size_t at = 0; at < outputs.size(); ++at) {
        if (auto fits = check(outputs[at], signature_.outputs[at]); !fits)
          return std::move(fits).error().within("the signature's outputs");
      }
      return {};
    }
    is_outputs_seen_ = true;
    signature_.outputs.clear();
    for (const Tensor& tensor : outputs) {
      TensorSpec spec{tensor.name, tensor.type, tensor.shape};
      if (known == Known::kinds)
        spec.shape.reset();
      else if (is_batched())
        spec.shape->front() = any_size;
      signature_.outputs.push_back(std::move(spec));
    }
    return {};
  }

  const std::string& path_;
  const ScriptOptions& options_;
  Signature signature_;
  std::vector<std::string> names_;
  std::vector<std::shared_ptr<Instance>> instances_;
  bool is_outputs_seen_ = false;  // the signature did not name them
  bool is_warm_ = false;
};

// Nothing if there is no such file.
struct FileSight {
  dev_t disk = 0;
  ino_t number = 0;
  off_t bytes = 0;
  timespec changed{};

  explicit FileSight(const std::string& path) {
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0) return;
    disk = status.st_dev;
    number = status.st_ino;
    bytes = status.st_size;
    changed = status.st_mtim;
  }
  bool is_that_of(const FileSight& other) const {
    return disk == other.disk && number == other.number && bytes == other.bytes &&
           changed.tv_sec == other.changed.tv_sec && changed.tv_nsec == other.changed.tv_nsec;
  }
};

// By its bytes: the same ones in another file, or put there anew, are the same program.
Result<std::string> version_of(const std::string& path) {
  const auto file = files::open_existing_file(path);
  if (!file) return file.error();
  Hasher hasher;
  std::vector<std::byte> buffer(hashed_bytes);
  for (;;) {
    const auto count = files::read_some(file->file.get(), buffer, path);
    if (!count) return count.error();
    if (*count == 0) return hasher.digest().hex();
    hasher.update(std::span<const std::byte>(buffer).first(*count));
  }
}

}  // namespace

Result<remote::Hosted> load_script(const std::string& path, const ScriptOptions& options) {
  try {
    const FileSight before(path);
    auto hosted = Loading(path, options).load();
    if (!hosted) return std::move(hosted).error().within(path);
    auto version = version_of(path);
    if (!version) return std::move(version).error();
    if (!before.is_that_of(FileSight(path))) return failed("it was replaced while it was read").within(path);
    hosted->card.version = std::move(*version);
    return hosted;
  } catch (const std::exception& problem) {
    return invalid("libtorch cannot load it: " + reason_of(problem)).within(path);
  }
}

}  // namespace tutti::serve
