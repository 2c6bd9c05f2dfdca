#include "learn/train/meeting.hpp"

#include <algorithm>
#include <cstdint>

namespace tutti::train {
namespace {

constexpr std::size_t text_bytes_max = std::size_t{1} << 30;

}  // namespace

Result<std::vector<std::string>> tell_all(comm::Communicator& world, const std::string& mine) {
  const auto ranks = static_cast<std::size_t>(world.size());
  const auto length = static_cast<std::int64_t>(mine.size());
  std::vector<std::int64_t> lengths(ranks);
  auto done = world.all_gather(&length, lengths.data(), 1, comm::DataType::i64, meeting_deadline).wait();
  if (!done) return std::move(done).error();
  const auto longest = static_cast<std::size_t>(*std::max_element(lengths.begin(), lengths.end()));
  if (longest > text_bytes_max) return failed("what a rank has to tell the others is too long");
  std::string padded = mine;
  padded.resize(longest);
  std::string all(ranks * longest, '\0');
  done = world.all_gather(padded.data(), all.data(), longest, comm::DataType::u8, meeting_deadline).wait();
  if (!done) return std::move(done).error();
  std::vector<std::string> texts;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    texts.push_back(all.substr(rank * longest, static_cast<std::size_t>(lengths[rank])));
  }
  return texts;
}

}  // namespace tutti::train
