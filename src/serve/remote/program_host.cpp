// The worker's end of a program in another process.
#include <optional>
#include <thread>

#include "serve/program/within_memory.hpp"
#include "serve/remote/channel.hpp"
#include "serve/remote/lifeline.hpp"
#include "serve/remote/program.hpp"

namespace tutti::serve::remote {
namespace {

Result<std::string> answer(const Lane& lane, std::string_view bytes) {
  const auto inputs = decode_tensors(bytes);
  if (!inputs) return inputs.error();
  const auto outputs = lane(*inputs);
  if (!outputs) return outputs.error();
  std::string encoded = encode(*outputs);
  if (encoded.size() > frame_bytes_max)
    return failed("what the model made has " + std::to_string(encoded.size()) + " bytes, and at most " +
                  std::to_string(frame_bytes_max) + " travel at once");
  return encoded;
}

// The next request, and what comes of it. Nothing if the other side has gone.
Result<std::optional<std::string>> serve_next(const Channel& channel, const Lane& lane) {
  const auto message = channel.receive();
  if (!message || !*message || (*message)->word != Word::run) return std::optional<std::string>();
  auto made = answer(lane, (*message)->bytes);
  if (!made) return std::move(made).error();
  return std::optional<std::string>(std::move(*made));
}

// Until the other side has gone. What there is no memory for fails, and the lane goes on.
void serve_lane(const Channel& channel, const Lane& lane) {
  for (;;) {
    const auto made = within_memory([&] { return serve_next(channel, lane); });
    if (made && !*made) return;
    const auto told = made ? channel.send(Word::ran, **made)
                           : channel.send(Word::failed, patiently([&] { return encode(made.error()); }));
    if (!told) return;
  }
}

}  // namespace

Result<> host_program(int descriptor, const MakeProgram& make) {
  end_with_other_side(descriptor);
  std::vector<Channel> channels;
  channels.emplace_back(files::FileDescriptor(descriptor));
  auto hosted = within_memory(make);
  if (!hosted) return channels.front().send(Word::failed, encode(hosted.error()));
  for (std::size_t nth = 1; nth < hosted->lanes.size(); ++nth)
    channels.emplace_back(files::FileDescriptor(descriptor + static_cast<int>(nth)));
  if (auto told = channels.front().send(Word::ready, encode(hosted->card)); !told) return told;
  std::vector<std::thread> threads;
  for (std::size_t nth = 0; nth < channels.size(); ++nth)
    threads.emplace_back([&, nth] { serve_lane(channels[nth], hosted->lanes[nth]); });
  for (std::thread& thread : threads) thread.join();
  return {};
}

}  // namespace tutti::serve::remote
