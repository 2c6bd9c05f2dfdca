// A job is accepted when all of the folder that it ships is there and outlives a power cut. Waits for the
// disk; any thread.
#pragma once

#include <string>

#include "base/result.hpp"
#include "net/sync/blobs.hpp"

namespace tutti::controller {

// `damaged`: a part of it is not here, or not as it was sent; that part counts as missing from now on.
// `failed`: it cannot be known or written now. `invalid`: it is no folder.
Result<> keep_shipped(sync::BlobStore& blobs, const std::string& manifest);

}  // namespace tutti::controller
