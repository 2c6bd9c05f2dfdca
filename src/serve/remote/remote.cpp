#include "serve/remote/remote.hpp"

#include "serve/remote/worker.hpp"

namespace tutti::serve::remote {
namespace {

class RemoteModel final : public Model {
 public:
  RemoteModel(std::unique_ptr<Worker> worker, Ready ready)
      : worker_(std::move(worker)), ready_(std::move(ready)) {}

  const Limits& limits() const override { return ready_.limits; }

  // The answer to choose() tells whether it could be computed, so that a step costs one way there and back.
  Result<> step(std::span<const Chunk> chunks) override { return worker_->send(Word::step, encode(chunks)); }

  Result<std::vector<Chosen>> choose(std::span<const Choice> choices) override {
    if (auto sent = worker_->send(Word::choose, encode(choices)); !sent) return std::move(sent).error();
    auto bytes = worker_->answer(Word::chosen);
    if (!bytes) return std::move(bytes).error();
    return read_chosen(*bytes, choices.size(), ready_.limits);
  }

  Result<std::vector<float>> logits(std::int32_t row) override {
    if (auto sent = worker_->send(Word::row, encode(row)); !sent) return std::move(sent).error();
    auto bytes = worker_->answer(Word::logits);
    if (!bytes) return std::move(bytes).error();
    return decode_logits(*bytes);
  }

  std::string describe() const override { return ready_.about; }

 private:
  std::unique_ptr<Worker> worker_;
  Ready ready_;
};

}  // namespace

Result<std::unique_ptr<Model>> open_model(const std::vector<std::string>& command) {
  auto worker = Worker::start({.command = command});
  if (!worker) return std::move(worker).error();
  auto ready = (*worker)->ready();
  if (!ready) return std::move(ready).error();
  return std::unique_ptr<Model>(std::make_unique<RemoteModel>(std::move(*worker), std::move(*ready)));
}

}  // namespace tutti::serve::remote
