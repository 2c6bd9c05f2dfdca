#include "serve/remote/remote.hpp"

#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <deque>
#include <optional>

#include "serve/remote/channel.hpp"

extern char** environ;

namespace tutti::serve::remote {
namespace {

std::string how_it_ended(int status) {
  if (WIFSIGNALED(status)) return "signal " + std::to_string(WTERMSIG(status));
  return "exit code " + std::to_string(WEXITSTATUS(status));
}

class RemoteModel final : public Model {
 public:
  RemoteModel(pid_t worker, Channel channel) : worker_(worker), channel_(std::move(channel)) {}
  ~RemoteModel() override {
    channel_.reset();  // it ends when nobody is there any more
    if (worker_ <= 0) return;
    kill(worker_, SIGTERM);
    while (waitpid(worker_, nullptr, 0) < 0 && errno == EINTR) continue;
  }

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
    if (auto asked = ask(choices); !asked) return std::move(asked).error();
    return answer();
  }

  bool works_ahead() const override { return ready_.works_ahead; }

  Result<> ask(std::span<const Choice> choices) override {
    if (auto sent = send(Word::choose, encode(choices)); !sent) return sent;
    asked_.push_back(choices.size());
    return {};
  }

  Result<std::vector<Chosen>> answer() override {
    if (asked_.empty()) return invalid("nothing was asked");
    const std::size_t count = asked_.front();
    asked_.pop_front();
    auto bytes = answer(Word::chosen);
    if (!bytes) return std::move(bytes).error();
    auto chosen = decode_chosen(*bytes);
    if (!chosen) return std::move(chosen).error();
    if (chosen->size() != count) return failed("the worker has chosen too few tokens or too many");
    for (const Chosen& each : *chosen) {
      if (each.token != no_token && (each.token < 0 || each.token >= ready_.limits.vocabulary))
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

  bool is_lost() override { return !channel_ || !channel_->is_open(); }

  std::string describe() const override { return ready_.about; }

 private:
  Result<> send(Word word, const std::string& bytes) {
    if (!channel_) return gone();
    if (auto sent = channel_->send(word, bytes); !sent) return gone();
    return {};
  }

  Result<std::string> answer(Word wanted) {
    if (!channel_) return gone();
    auto message = channel_->receive();
    if (!message || !*message) return gone();
    if ((*message)->word == Word::failed) return decode_error((*message)->bytes);
    if ((*message)->word != wanted) return failed("the worker has answered something else");
    return std::move((*message)->bytes);
  }

  Error gone() {
    channel_.reset();
    asked_.clear();
    if (worker_ > 0) {
      kill(worker_, SIGKILL);
      int status = 0;
      while (waitpid(worker_, &status, 0) < 0 && errno == EINTR) continue;
      worker_ = 0;
      why_ = how_it_ended(status);
    }
    return failed("the worker with the model has ended: " + why_);
  }

  pid_t worker_;
  std::optional<Channel> channel_;
  Ready ready_;
  std::deque<std::size_t> asked_;  // choices of each question that was not answered
  std::string why_;
};

}  // namespace

Result<std::unique_ptr<Model>> open_model(const std::vector<std::string>& command) {
  int ends[2] = {-1, -1};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return failed_errno("a socket to the worker", errno);
  files::FileDescriptor own(ends[0]);
  files::FileDescriptor theirs(ends[1]);
  std::vector<char*> words;
  words.reserve(command.size() + 1);
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, theirs.get(), worker_descriptor);
  // Ctrl-C is for whoever talks with people: he drains first.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  pid_t worker = 0;
  const int failure = posix_spawnp(&worker, words[0], &actions, &attributes, words.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (failure != 0)
    return failed_errno(command.front(), failure)
        .remedy("tutti-worker lies beside tutti; `./dev build` makes both");
  auto model = std::make_unique<RemoteModel>(worker, Channel(std::move(own)));
  // Only the worker has its end now, so that its end is noticed.
  theirs = files::FileDescriptor();
  if (auto ready = model->wait_until_ready(); !ready) return std::move(ready).error();
  return std::unique_ptr<Model>(std::move(model));
}

}  // namespace tutti::serve::remote
