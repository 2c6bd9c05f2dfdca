// Whether several processes, or the next one, read the same files: each opens them by itself, and meanwhile
// somebody may write other ones in their place. No weights are read for it. Any thread.
#pragma once

#include <span>
#include <string>

#include "base/result.hpp"
#include "serve/load/adapters.hpp"
#include "serve/load/source.hpp"

namespace tutti::serve {

// Of what lies in a folder of Hugging Face or of PEFT and decides about its numbers: names, sizes, times of
// writing.
std::string stamp_of_folder(const std::string& folder);

// Of the source as it was opened and of the adapters as they lie there now: to be asked before they are read.
std::string fingerprint_of(const Source& source, std::span<const NamedAdapter> adapters);
// To be asked when they are read: whether they are still those of that fingerprint. What a checkpoint gives
// is verified block by block, whatever has become of its folder.
Result<> check_unchanged(const Source& source, std::span<const NamedAdapter> adapters,
                         const std::string& fingerprint);

}  // namespace tutti::serve
