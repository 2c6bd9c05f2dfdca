// The program that links libtorch. Main thread.
#pragma once

#include <string>

namespace tutti::cli {

// tutti-worker beside this program, or wherever the nodes have it.
std::string worker_program();

}  // namespace tutti::cli
