// A program in another process, such as a TorchScript model in `tutti-worker script`: each lane is a socket
// and a thread of its own at the other end. A worker that dies is started again, later each time; until it is
// there, what is asked fails and says why.
//
//   runner, lane 0 ─▶ RemoteProgram ══ run ═▶ host_program, lane 0 ─▶ an instance      (tutti │ tutti-worker)
//           lane 1 ─▶               ◀═ ran ══               lane 1 ─▶ another
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/time.hpp"
#include "serve/program/program.hpp"
#include "serve/remote/tensor_codec.hpp"

namespace tutti::serve::remote {

inline constexpr int lanes_max = 64;

struct Patience {
  Duration first = 100ms;  // before a dead worker is started again; twice as long each time
  Duration most = 30s;
  Duration forgets = 60s;  // one that has lived so long begins anew
};

// Starts the program and waits until it is loaded.
// `tell` hears, on a thread of its own, that the worker has ended, why none could be started, and that one is
// there again.
Result<std::unique_ptr<Program>> open_program(std::vector<std::string> command, int lanes,
                                              const Patience& patience = {},
                                              std::function<void(const std::string&)> tell = nullptr);

// The other end, in the worker: a lane is what one thread computes with.
using Lane = std::function<Result<std::vector<Tensor>>(const std::vector<Tensor>& inputs)>;
struct Hosted {
  ProgramCard card;
  std::vector<Lane> lanes;
};
using MakeProgram = std::function<Result<Hosted>()>;
// Makes the program, tells what it is or why there is none, and computes until the other side has gone: then
// the process ends, whatever it is at. The sockets of the lanes are at `descriptor` and behind it.
Result<> host_program(int descriptor, const MakeProgram& make);

}  // namespace tutti::serve::remote
