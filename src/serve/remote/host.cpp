// The worker's end of a model in another process.
#include <deque>
#include <optional>

#include "serve/program/within_memory.hpp"
#include "serve/remote/channel.hpp"
#include "serve/remote/remote.hpp"

namespace tutti::serve::remote {
namespace {

using Answer = Result<std::vector<Chosen>>;

class Host {
 public:
  Host(Channel channel, Made made)
      : channel_(std::move(channel)),
        model_(std::move(made.model)),
        fingerprint_(std::move(made.fingerprint)) {}

  Result<> run() {
    const Ready ready{model_->limits(), model_->works_ahead(), model_->describe(), fingerprint_};
    if (auto told = channel_.send(Word::ready, encode(ready)); !told) return told;
    for (;;) {
      // What is answered goes out first. A model that works ahead may be given more while it computes.
      if (!asked_.empty() && (asked_.front().has_value() || model_->has_answer())) {
        if (auto told = tell_first(); !told) return told;
        continue;
      }
      if (!asked_.empty() && !channel_.has_message()) continue;
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
      case Word::choose:
        return take_question(message.bytes);
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

  Result<> take_question(std::string_view bytes) {
    if (asked_.size() == 2) return failed("tutti has asked for a third step before it knows the first");
    auto memory = choices_of(bytes);
    if (!memory) {
      asked_.emplace_back(std::move(memory).error());
    } else if (model_->works_ahead()) {
      auto asked = model_->ask(memory->choices);
      asked_.push_back(asked ? std::nullopt : std::optional<Answer>(std::move(asked).error()));
    } else {
      asked_.emplace_back(model_->choose(memory->choices));
    }
    return {};
  }

  Result<> tell_first() {
    const Answer answer = asked_.front() ? std::move(*asked_.front()) : model_->answer();
    asked_.pop_front();
    if (answer) return channel_.send(Word::chosen, encode(std::span<const Chosen>(*answer)));
    if (auto told = channel_.send(Word::failed, encode(answer.error())); !told) return told;
    // A GPU that has failed once fails this process for ever; another one may have it whole.
    return answer.error().code() == ErrorCode::invalid ? Result<>() : Result<>(answer.error());
  }

  Result<ChoiceMemory> choices_of(std::string_view bytes) {
    if (step_problem_) return *step_problem_;
    auto memory = decode_choices(bytes);
    if (!memory) return std::move(memory).error();
    const auto words = static_cast<std::size_t>(model_->limits().vocabulary + 63) / 64;
    for (const Choice& choice : memory->choices) {
      if (!choice.allowed.empty() && choice.allowed.size() != words)
        return invalid("a mask is not as long as the vocabulary");
      if (choice.given < no_token || choice.given >= model_->limits().vocabulary)
        return invalid("a token is given that is not in the vocabulary");
    }
    return memory;
  }

  Result<std::vector<float>> logits(std::string_view bytes) {
    if (step_problem_) return *step_problem_;
    const auto row = decode_row(bytes);
    if (!row) return row.error();
    return model_->logits(*row);
  }

  Channel channel_;
  std::unique_ptr<Model> model_;
  std::string fingerprint_;
  std::optional<Error> step_problem_;  // of the last step, told with the next answer
  // Questions whose answers were not told, the oldest first; nothing: the model is at it.
  std::deque<std::optional<Answer>> asked_;
};

}  // namespace

Result<> host_model(int descriptor, const MakeModel& make) {
  Channel channel{files::FileDescriptor(descriptor)};
  auto made = within_memory(make);
  if (!made) return channel.send(Word::failed, encode(made.error()));
  Host host(std::move(channel), std::move(*made));
  // Half of a step may be done then: this process ends with a word on why, and another one is started.
  return within_memory([&] { return host.run(); });
}

}  // namespace tutti::serve::remote
