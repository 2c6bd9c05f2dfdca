// The ranks of a model as threads of one process, each with its part and with comm between them: the model
// that they are together.
#pragma once

#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "comm/ranks_test.hpp"
#include "serve/cpu/families_test.hpp"
#include "serve/cpu/model.hpp"
#include "serve/cpu/reference_test.hpp"
#include "serve/parallel/peers.hpp"

namespace tutti::serve::parallel {

class Together final : public Model {
 public:
  Together(const model::Shape& shape, const cpu::MadeTensors& tensors, int ranks, const cpu::Options& options)
      : ranks_(static_cast<std::size_t>(ranks)) {
    comm::Meeting meeting(ranks);
    std::vector<comm::Options> places;
    for (int rank = 0; rank < ranks; ++rank) places.push_back(meeting.of(rank));
    on_all([&](std::size_t rank) {
      auto peers = connect(places[rank]);
      ASSERT_TRUE(peers) << peers.error().text();
      cpu::Options own = options;
      own.peers = std::move(*peers);
      auto made = cpu::make_model(shape, own, cpu::reader_of(tensors));
      ASSERT_TRUE(made) << made.error().text();
      ranks_[rank] = std::move(*made);
    });
  }
  ~Together() override {
    on_all([&](std::size_t rank) { ranks_[rank].reset(); });
  }

  bool is_there() const { return ranks_.front() != nullptr; }
  const Model& rank(std::size_t rank) const { return *ranks_[rank]; }

  const Limits& limits() const override { return ranks_.front()->limits(); }
  Result<> step(std::span<const Chunk> chunks) override {
    Result<> first;
    on_all([&](std::size_t rank) {
      auto done = ranks_[rank]->step(chunks);
      EXPECT_TRUE(done) << done.error().text();
      if (rank == 0) first = std::move(done);
    });
    return first;
  }
  Result<std::vector<Chosen>> choose(std::span<const Choice> choices) override {
    return ranks_.front()->choose(choices);
  }
  Result<std::vector<float>> logits(std::int32_t row) override { return ranks_.front()->logits(row); }
  std::string describe() const override { return ranks_.front()->describe(); }

 private:
  template <class Work>
  void on_all(const Work& work) {
    std::vector<std::jthread> threads;
    for (std::size_t rank = 1; rank < ranks_.size(); ++rank)
      threads.emplace_back([&work, rank] { work(rank); });
    work(0);
  }

  std::vector<std::unique_ptr<Model>> ranks_;
};

}  // namespace tutti::serve::parallel
