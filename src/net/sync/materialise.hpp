// Makes the folder that a manifest describes, out of a store of blobs. Any thread; one call at a time a
// target.
#pragma once

#include <string>
#include <vector>

#include "base/result.hpp"
#include "net/sync/blobs.hpp"
#include "net/sync/manifest.hpp"

namespace tutti::sync {

// The hashes that the store lacks, or has in another size than the manifest says; each once, sorted.
std::vector<std::string> missing(const Manifest& manifest, const BlobStore& blobs);

// The target appears whole or not at all: it is built beside its place, as TARGET.partial, and renamed. What
// a call that was killed left there, the next one for the same target removes. A target that exists is
// refused, since a job may have written to it. Files are copies, which the job may change. A power loss can
// still empty files that were in place, so after one the target is to be removed and made again. What nobody
// wants any more is left off before its next file or chunk.
Result<> materialise(const Manifest& manifest, const BlobStore& blobs, const std::string& target,
                     const Limits& limits = {}, const StillWanted& still_wanted = {});

}  // namespace tutti::sync
