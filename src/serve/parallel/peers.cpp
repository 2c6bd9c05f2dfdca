#include "serve/parallel/peers.hpp"

namespace tutti::serve::parallel {
namespace {

// Ranks load side by side, and large models from slow disks.
constexpr Duration load_deadline = 3600s;

class CommPeers final : public Peers {
 public:
  explicit CommPeers(comm::Communicator world) : world_(std::move(world)) {}

  int rank() const override { return world_.rank(); }
  int count() const override { return world_.size(); }

  Result<> sum(float* numbers, std::size_t count) override {
    return world_.all_reduce(numbers, numbers, count, comm::DataType::f32, comm::Reduction::sum).wait();
  }

  Result<> gather(const float* numbers, float* all, std::size_t count) override {
    return world_.gather(numbers, all, count, comm::DataType::f32, 0).wait();
  }

  Result<std::int64_t> least(std::int64_t number) override {
    auto done =
        world_.all_reduce(&number, &number, 1, comm::DataType::i64, comm::Reduction::min, load_deadline)
            .wait();
    if (!done) return std::move(done).error();
    return number;
  }

  void use_queue(void* stream) override { world_.use_stream(stream); }
  Result<> check() const override { return world_.check(); }

 private:
  comm::Communicator world_;
};

}  // namespace

Result<std::shared_ptr<Peers>> connect(comm::Options options) {
  options.deadline = step_deadline;
  auto world = comm::Communicator::connect(options);
  if (!world) return std::move(world).error();
  return std::shared_ptr<Peers>(std::make_shared<CommPeers>(std::move(*world)));
}

}  // namespace tutti::serve::parallel
