#include "serve/remote/remote.hpp"

#include "serve/remote/channel.hpp"
#include "serve/remote/worker_process.hpp"

namespace tutti::serve::remote {
namespace {

class RemoteModel final : public Model {
 public:
  explicit RemoteModel(std::unique_ptr<WorkerProcess> worker) : worker_(std::move(worker)) {}

  Result<> wait_until_ready() {
    auto bytes = answer(Word::ready);
    if (!bytes) return std::move(bytes).error();
    auto ready = decode_ready(*bytes);
    if (!ready) return std::move(ready).error();
    ready_ = std::move(*ready);
    return {};
  }

  const Limits& limits() const override { return ready_.limits; }

  // The answer to choose() tells whether it could be computed, so that a step costs one way there and back.
  Result<> step(std::span<const Chunk> chunks) override { return send(Word::step, encode(chunks)); }

  Result<std::vector<Chosen>> choose(std::span<const Choice> choices) override {
    if (auto sent = send(Word::choose, encode(choices)); !sent) return std::move(sent).error();
    auto bytes = answer(Word::chosen);
    if (!bytes) return std::move(bytes).error();
    auto chosen = decode_chosen(*bytes);
    if (!chosen) return std::move(chosen).error();
    if (chosen->size() != choices.size()) return failed("the worker has chosen too few tokens or too many");
    for (const Chosen& each : *chosen) {
      if (each.token < 0 || each.token >= ready_.limits.vocabulary)
        return failed("the worker has chosen a token that is not in the vocabulary");
    }
    return chosen;
  }

  Result<std::vector<float>> logits(std::int32_t row) override {
    if (auto sent = send(Word::row, encode(row)); !sent) return std::move(sent).error();
    auto bytes = answer(Word::logits);
    if (!bytes) return std::move(bytes).error();
    return decode_logits(*bytes);
  }

  std::string describe() const override { return ready_.about; }

 private:
  Result<> send(Word word, const std::string& bytes) {
    if (has_gone_) return gone();
    if (auto sent = worker_->lane(0).send(word, bytes); !sent) return gone();
    return {};
  }

  Result<std::string> answer(Word wanted) {
    if (has_gone_) return gone();
    auto message = worker_->lane(0).receive();
    if (!message || !*message) return gone();
    if ((*message)->word == Word::failed) return decode_error((*message)->bytes);
    if ((*message)->word != wanted) return failed("the worker has answered something else");
    return std::move((*message)->bytes);
  }

  Error gone() {
    has_gone_ = true;
    return failed("the worker with the model has ended: " + worker_->end()).remedy("start the engine again");
  }

  std::unique_ptr<WorkerProcess> worker_;
  bool has_gone_ = false;
  Ready ready_;
};

}  // namespace

Result<std::unique_ptr<Model>> open_model(const std::vector<std::string>& command) {
  auto worker = WorkerProcess::start(command, 1);
  if (!worker) return std::move(worker).error();
  auto model = std::make_unique<RemoteModel>(std::move(*worker));
  if (auto ready = model->wait_until_ready(); !ready) return std::move(ready).error();
  return std::unique_ptr<Model>(std::move(model));
}

}  // namespace tutti::serve::remote
