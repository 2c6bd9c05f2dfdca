// A TorchScript archive as a program: libtorch loads it, runs it on zeros until it is quick, and computes in
// lanes, each a copy of the module with weights of its own and, on a GPU, a stream of its own. The code in an
// archive is a program, and is trusted as one.
#pragma once

#include <string>

#include "base/result.hpp"
#include "serve/load/script.hpp"
#include "serve/remote/program.hpp"

namespace tutti::serve {

// What the worker hosts. One thread; each of its lanes is then for one thread.
Result<remote::Hosted> load_script(const std::string& path, const ScriptOptions& options);

}  // namespace tutti::serve
