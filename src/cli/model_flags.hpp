// The flags of all commands that load a model into this process. Main thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/config/flags.hpp"
#include "base/result.hpp"
#include "serve/batch/batch.hpp"
#include "serve/load/load.hpp"

namespace tutti::cli {

class ModelFlags {
 public:
  void declare(config::Flags& flags);

  struct Chosen {
    serve::LoadOptions load;
    serve::BatchSettings batch;
  };
  Result<Chosen> choose() const;
  // The same for who wants one answerer: at most one adapter, which is then meant.
  Result<Chosen> choose_one() const;
  // The first flag that was given and is for language models alone; empty if none was.
  std::string given() const;
  // What the model has not of what was asked for, on stderr.
  void tell(const serve::Loaded& loaded) const;

 private:
  std::string device_ = "auto";
  std::string weights_ = "auto";
  std::int64_t ranks_ = 1;
  std::int64_t threads_ = 0;
  std::int64_t context_ = 0;
  Bytes cache_;
  std::int64_t sequences_ = 0;  // 0: what the device likes
  std::int64_t drafts_ = 0;
  std::vector<std::string> adapters_;
};

}  // namespace tutti::cli
