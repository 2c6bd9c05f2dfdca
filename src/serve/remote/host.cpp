// The worker's end of a model in another process.
#include <optional>

#include "serve/remote/channel.hpp"
#include "serve/remote/remote.hpp"

namespace tutti::serve::remote {
namespace {

class Host {
 public:
  Host(Channel channel, std::unique_ptr<Model> model)
      : channel_(std::move(channel)), model_(std::move(model)) {}

  Result<> run() {
    if (auto told = channel_.send(Word::ready, encode(Ready{model_->limits(), model_->describe()})); !told)
      return told;
    for (;;) {
      auto message = channel_.receive();
      if (!message) return std::move(message).error();
      if (!*message) return {};
      if (auto done = take(**message); !done) return done;
    }
  }

 private:
  Result<> take(const Message& message) {
    switch (message.word) {
      case Word::step:
        step_problem_.reset();
        if (auto done = step(message.bytes); !done) step_problem_ = std::move(done).error();
        return {};
      case Word::choose: {
        const auto chosen = choose(message.bytes);
        return chosen ? channel_.send(Word::chosen, encode(std::span<const Chosen>(*chosen)))
                      : channel_.send(Word::failed, encode(chosen.error()));
      }
      case Word::row: {
        const auto row = logits(message.bytes);
        return row ? channel_.send(Word::logits, encode(std::span<const float>(*row)))
                   : channel_.send(Word::failed, encode(row.error()));
      }
      case Word::ready:
      case Word::failed:
      case Word::chosen:
      case Word::logits:
      case Word::run:
      case Word::ran:
        break;
    }
    return failed("tutti has said something that a worker does not know");
  }

  Result<> step(std::string_view bytes) {
    auto memory = decode_step(bytes);
    if (!memory) return std::move(memory).error();
    return model_->step(memory->chunks);
  }

  Result<std::vector<Chosen>> choose(std::string_view bytes) {
    if (step_problem_) return *step_problem_;
    auto memory = decode_choices(bytes);
    if (!memory) return std::move(memory).error();
    const auto words = static_cast<std::size_t>(model_->limits().vocabulary + 63) / 64;
    for (const Choice& choice : memory->choices) {
      if (!choice.allowed.empty() && choice.allowed.size() != words)
        return failed("a mask is not as long as the vocabulary");
    }
    return model_->choose(memory->choices);
  }

  Result<std::vector<float>> logits(std::string_view bytes) {
    if (step_problem_) return *step_problem_;
    const auto row = decode_row(bytes);
    if (!row) return row.error();
    return model_->logits(*row);
  }

  Channel channel_;
  std::unique_ptr<Model> model_;
  std::optional<Error> step_problem_;  // of the last step, told with the next answer
};

}  // namespace

Result<> host_model(int descriptor, const MakeModel& make) {
  Channel channel{files::FileDescriptor(descriptor)};
  auto model = make();
  if (!model) return channel.send(Word::failed, encode(model.error()));
  return Host(std::move(channel), std::move(*model)).run();
}

}  // namespace tutti::serve::remote
