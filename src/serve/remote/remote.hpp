// A model in another process: `tutti` has HTTP and no libtorch, `tutti-worker` has devices and no HTTP. The
// port of serve/model goes through a socket between them, a message or two a step; when the worker dies,
// requests fail and tutti does not.
//
//   engine ─▶ RemoteModel ══ step, choose ═▶ host_model ─▶ cuda | cpu        (tutti │ tutti-worker)
//                         ◀═ chosen ════════
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/time.hpp"
#include "serve/model/model.hpp"

namespace tutti::serve::remote {

// The descriptor of the socket in the worker, and of one that listens behind it where it was given one.
inline constexpr int worker_descriptor = 3;
inline constexpr int listener_descriptor = 4;

// How long a worker may take before it is said to hang, and ended: as one that has died it is lost then. A
// GPU has a step in milliseconds; a large model comes from a slow disk in many minutes.
struct Deadlines {
  Duration loading = 1h;
  Duration step = 60s;
};

// Starts the program and waits until its model is loaded. It ends with the model. One thread at a time.
Result<std::unique_ptr<Model>> open_model(const std::vector<std::string>& command,
                                          const Deadlines& deadlines = {});

// The other end, in the worker: makes the model, tells its limits or why there is none, and computes until
// the other side has gone. One thread.
struct Made {
  std::unique_ptr<Model> model;
  std::string fingerprint = {};  // of the files that it was read from
};
using MakeModel = std::function<Result<Made>()>;
Result<> host_model(int descriptor, const MakeModel& make);

}  // namespace tutti::serve::remote
