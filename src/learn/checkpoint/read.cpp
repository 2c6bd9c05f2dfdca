#include "learn/checkpoint/read.hpp"

#include <algorithm>

#include "base/bytes.hpp"
#include "learn/checkpoint/blocks.hpp"
#include "learn/checkpoint/folder.hpp"

namespace tutti::checkpoint {

Checkpoint::Checkpoint(std::string path, Manifest manifest, Tensors tensors)
    : path_(std::move(path)),
      state_(std::move(manifest.state)),
      tensors_(std::move(tensors)),
      blocks_(std::make_unique<Blocks>(path_, std::move(manifest.files))) {}
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&&) noexcept = default;
Checkpoint::~Checkpoint() = default;

Result<Checkpoint> Checkpoint::open(const std::string& path) { return open(path, load_manifest(path)); }

Result<Checkpoint> Checkpoint::open(const std::string& folder, std::int64_t step) {
  return open(checkpoint_path(folder, step), load_manifest(folder, step));
}

Result<Checkpoint> Checkpoint::open(const std::string& path, Result<Manifest> manifest) {
  if (!manifest) return std::move(manifest).error();
  auto tensors = index_tensors(manifest->files);
  if (!tensors) return std::move(tensors).error().as(ErrorCode::damaged).within(path);
  return Checkpoint(path, std::move(*manifest), std::move(*tensors));
}

Result<> Checkpoint::read(const std::string& tensor, const Box& box, std::span<std::byte> bytes) const {
  const auto found = tensors_.find(tensor);
  if (found == tensors_.end()) return invalid("there is no tensor '" + tensor + "'").within(path_);
  const StoredTensor& stored = found->second;
  if (!is_inside(box, stored.shape)) {
    return invalid("tensor '" + tensor + "' has no " + box.text() + ": it is " + whole(stored.shape).text())
        .within(path_);
  }
  const std::size_t size = safetensors::size_of(stored.type);
  TUTTI_CHECK(bytes.size() == static_cast<std::size_t>(box.elements()) * size);
  for (const Place& place : stored.places) {
    SharedRuns runs(place.box, box);
    while (const auto run = runs.next()) {
      const auto out = bytes.subspan(static_cast<std::size_t>(run->wanted) * size,
                                     static_cast<std::size_t>(run->elements) * size);
      auto copied =
          blocks_->copy(place.file, place.begin + static_cast<std::uint64_t>(run->source) * size, out);
      if (!copied) return copied;
    }
  }
  return {};
}

Result<> Checkpoint::hold() const { return blocks_->hold(); }

std::uint64_t Checkpoint::bytes_read() const { return blocks_->bytes_read(); }

Hash128 Checkpoint::fingerprint() const {
  Hasher hasher;
  hasher.update(as_bytes(state_.model_config));
  for (const FileRecord& file : blocks_->files()) {
    hasher.update(as_bytes(file.name + " " + std::to_string(file.bytes) + "\n"));
    hasher.update(std::as_bytes(std::span(file.blocks)));
  }
  return hasher.digest();
}

Result<> Checkpoint::verify(const Progress& progress) const {
  std::uint64_t all = 0;
  for (const FileRecord& file : blocks_->files()) all += file.bytes;
  std::uint64_t done = 0;
  for (std::size_t file = 0; file < blocks_->files().size(); ++file) {
    if (auto fits = blocks_->check_size(file); !fits) return fits;
    for (std::uint64_t block = 0; block < blocks_->files()[file].blocks.size(); ++block) {
      const auto read = blocks_->read(file, block);
      if (!read) return read.error();
      done += read->size();
      progress(done, all);
    }
  }
  return {};
}

Result<std::optional<Checkpoint>> open_latest(const std::string& folder,
                                              std::optional<std::int64_t> before_step) {
  auto steps = steps_in(folder);
  if (!steps) return steps.error();
  std::optional<Error> problem;
  while (!steps->empty()) {
    const std::int64_t step = steps->back();
    steps->pop_back();
    if (before_step && step >= *before_step) continue;
    auto opened = Checkpoint::open(folder, step);
    if (opened) return std::optional(std::move(*opened));
    auto now = steps_in(folder);
    if (now && !std::ranges::binary_search(*now, step)) {
      // It was removed since: the ones before it are, too, and a newer one is there.
      steps = std::move(now);
      problem.reset();
      continue;
    }
    // One that is only not readable just now is not lost: of several problems that is the one to know.
    const bool graver =
        problem && problem->code() == ErrorCode::damaged && opened.error().code() != ErrorCode::damaged;
    if (!problem || graver) problem = std::move(opened).error();
  }
  if (problem) return std::move(*problem);
  return std::optional<Checkpoint>();
}

Result<std::optional<Checkpoint>> hold_latest(const std::string& folder) {
  auto latest = open_latest(folder);
  while (latest && *latest) {
    const auto held = (*latest)->hold();
    if (held) break;
    auto next = open_latest(folder);
    const bool is_same = next && *next && (*next)->path() == (*latest)->path();
    if (is_same) return held.error();
    latest = std::move(next);
  }
  return latest;
}

}  // namespace tutti::checkpoint
