// What a worker is told of a TorchScript model: from `tutti` to `tutti-worker script`, as JSON. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "serve/tensor/signature.hpp"

namespace tutti::serve {

inline constexpr int instances_max = 64;
inline constexpr std::int64_t rows_max_limit = 65'536;

struct ScriptOptions {
  std::string device = "cpu";  // or cuda
  int instances = 1;           // that compute at once, each with weights of its own
  std::int64_t rows_max = 1;   // of a batch; 1: nothing is computed together
  Signature signature;         // without inputs: those of the program's own forward
};

std::string write_script_options(const ScriptOptions& options);
Result<ScriptOptions> read_script_options(std::string_view text);

// What MODEL.json says beside MODEL.pt; nothing is said where there is no such file.
Result<Signature> read_script_signature(const std::string& path);
// "mlp" of "/models/mlp.pt".
std::string script_name(const std::string& path);

}  // namespace tutti::serve
