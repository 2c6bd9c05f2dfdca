#include "serve/remote/remote.hpp"

#include <deque>

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
    if (auto asked = ask(choices); !asked) return std::move(asked).error();
    return answer();
  }

  bool works_ahead() const override { return ready_.works_ahead; }

  Result<> ask(std::span<const Choice> choices) override {
    const std::string bytes = encode(choices);
    asked_.push_back(choices.size());  // before it is sent: an answer that nobody waits for would stay
    auto sent = worker_->send(Word::choose, bytes);
    if (!sent) asked_.pop_back();
    return sent;
  }

  Result<std::vector<Chosen>> answer() override {
    if (asked_.empty()) return invalid("nothing was asked");
    const std::size_t count = asked_.front();
    asked_.pop_front();
    auto bytes = worker_->answer(Word::chosen);
    if (!bytes) return std::move(bytes).error();
    return read_chosen(*bytes, count, ready_.limits);
  }

  Result<std::vector<float>> logits(std::int32_t row) override {
    if (auto sent = worker_->send(Word::row, encode(row)); !sent) return std::move(sent).error();
    auto bytes = worker_->answer(Word::logits);
    if (!bytes) return std::move(bytes).error();
    return decode_logits(*bytes);
  }

  bool is_lost() override { return !worker_->is_open(); }
  void abandon() override { worker_->kill(); }

  std::string describe() const override { return ready_.about; }
  std::string fingerprint() const override { return ready_.fingerprint; }

 private:
  std::unique_ptr<Worker> worker_;
  Ready ready_;
  std::deque<std::size_t> asked_;  // choices of each question that was not answered
};

}  // namespace

Result<std::unique_ptr<Model>> open_model(const std::vector<std::string>& command,
                                          const Deadlines& deadlines) {
  auto worker = Worker::start({.command = command, .deadlines = deadlines});
  if (!worker) return std::move(worker).error();
  auto ready = (*worker)->ready();
  if (!ready) return std::move(ready).error();
  return std::unique_ptr<Model>(std::make_unique<RemoteModel>(std::move(*worker), std::move(*ready)));
}

}  // namespace tutti::serve::remote
