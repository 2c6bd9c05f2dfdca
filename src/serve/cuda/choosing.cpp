#include "serve/cuda/choosing.hpp"

#include <algorithm>
#include <iterator>

namespace tutti::serve::cuda {

Choosing::Choosing(const Resident& resident, Steps& steps, Events done)
    : resident_(resident), steps_(steps), done_(std::move(done)) {}

Result<std::unique_ptr<Choosing>> Choosing::make(const Resident& resident, Steps& steps) {
  Events events;
  for (OwnEvent& event : events) {
    auto made = make_event();
    if (!made) return std::move(made).error();
    event = std::move(*made);
  }
  return std::unique_ptr<Choosing>(new Choosing(resident, steps, std::move(events)));
}

Result<> Choosing::ask(std::span<const Choice> choices) {
  if (auto done = resident_.enter(); !done) return done;
  if (asked_.size() == answer_slots) return invalid("two steps are under way already");
  Asked asked{.slot = asks_++ % answer_slots, .places = {}, .known = std::nullopt};
  const auto sampled = place(choices, asked);
  if (!sampled) return sampled.error();
  if (auto done = fetch(asked, *sampled); !done) return done;
  places_ = asked.places;
  if (!std::ranges::all_of(choices, is_plain)) {
    auto chosen = choose_here(choices, asked);
    if (!chosen) return std::move(chosen).error();
    asked.known = std::move(*chosen);
  }
  asked_.push_back(std::move(asked));
  return {};
}

// Where each token will be: that of a row that takes its largest at the row, the others behind all rows. So
// many of those are drawn.
Result<std::int32_t> Choosing::place(std::span<const Choice> choices, Asked& asked) const {
  Sample* const samples =
      reinterpret_cast<Sample*>(resident_.memory.samples.get()) + asked.slot * resident_.rows_max();
  std::int32_t sampled = 0;
  for (const Choice& choice : choices) {
    if (auto fine = check_row(choice.row); !fine) return std::move(fine).error();
    if (!is_plain(choice) || choice.temperature <= 0) {
      asked.places.push_back(choice.row);
      continue;
    }
    if (sampled == resident_.options.step_rows_max)
      return invalid("more tokens are to be chosen than a step has rows");
    samples[sampled] = {.uniform = choice.uniform,
                        .row = choice.row,
                        .temperature = choice.temperature,
                        .top_k = choice.top_k,
                        .top_p = choice.top_p,
                        .min_p = choice.min_p};
    asked.places.push_back(static_cast<std::int32_t>(resident_.padded_rows()) + sampled++);
  }
  if (sampled == 0) return sampled;
  const Scratch& scratch = resident_.scratch;
  auto copied =
      checked(cudaMemcpyAsync(scratch.samples, samples, static_cast<std::size_t>(sampled) * sizeof(Sample),
                              cudaMemcpyHostToDevice, resident_.stream.get()),
              "choosing tokens");
  if (!copied) return std::move(copied).error();
  sample(steps_.forward().logits(), scratch.samples, sampled, scratch.chosen + resident_.padded_rows(),
         steps_.queue());
  return sampled;
}

// The tokens of the step to the host.
Result<> Choosing::fetch(const Asked& asked, std::int32_t sampled) const {
  const std::size_t count = sampled > 0 ? resident_.padded_rows() + static_cast<std::size_t>(sampled)
                                        : static_cast<std::size_t>(steps_.rows());
  auto copied =
      checked(cudaMemcpyAsync(tokens_of(asked.slot), resident_.scratch.chosen, count * sizeof(std::int32_t),
                              cudaMemcpyDeviceToHost, resident_.stream.get()),
              "choosing tokens");
  if (!copied) return copied;
  return checked(cudaEventRecord(done_[asked.slot].get(), resident_.stream.get()), "choosing tokens");
}

bool Choosing::has_answer() const {
  return asked_.empty() || asked_.front().known ||
         cudaEventQuery(done_[asked_.front().slot].get()) != cudaErrorNotReady;
}

Result<std::vector<Chosen>> Choosing::answer() {
  if (asked_.empty()) return invalid("nothing was asked");
  Asked asked = std::move(asked_.front());
  asked_.pop_front();
  if (asked.known) return std::move(*asked.known);
  return tokens_known(asked);
}

Result<std::vector<float>> Choosing::logits(std::int32_t row) const {
  if (auto done = resident_.enter(); !done) return std::move(done).error();
  if (auto fine = check_row(row); !fine) return std::move(fine).error();
  const LogitRows rows = steps_.forward().logits();
  std::vector<float> floats(static_cast<std::size_t>(rows.vocabulary));
  auto copied =
      checked(cudaMemcpyAsync(floats.data(), rows.data + row * rows.stride, floats.size() * sizeof(float),
                              cudaMemcpyDeviceToHost, resident_.stream.get()),
              "reading logits");
  if (!copied) return std::move(copied).error();
  if (auto finished = steps_.finish(); !finished) return std::move(finished).error();
  return floats;
}

Result<std::vector<Chosen>> Choosing::tokens_known(const Asked& asked) const {
  auto done = checked(cudaEventSynchronize(done_[asked.slot].get()), "computing a step");
  if (!done) return std::move(done).error();
  std::vector<Chosen> chosen(asked.places.size());
  for (std::size_t at = 0; at < chosen.size(); ++at)
    chosen[at].token = tokens_of(asked.slot)[asked.places[at]];
  return chosen;
}

// What only the host does, or reads.
Result<std::vector<Chosen>> Choosing::choose_here(std::span<const Choice> choices, const Asked& asked) {
  std::vector<double> known;
  if (auto done = ask_for_known(choices, known); !done) return std::move(done).error();
  if (auto done = steps_.finish(); !done) return std::move(done).error();
  auto chosen = tokens_known(asked);
  if (!chosen) return chosen;
  take_known(choices, known, *chosen);
  for (std::size_t at = 0; at < choices.size(); ++at) {
    const Choice& choice = choices[at];
    if (is_plain(choice)) continue;
    Chosen& own = (*chosen)[at];
    if (choice.given != no_token && choice.logprobs < 0) {
      own.token = choice.given;
      continue;
    }
    const auto row = logits(choice.row);
    if (!row) return row.error();
    const Chosen picked = chooser_.choose(*row, choice);
    own.token = picked.token;
    own.logprob = picked.logprob;
    own.likeliest = picked.likeliest;
  }
  return chosen;
}

std::size_t Choosing::known_stride() const { return static_cast<std::size_t>(Sizes(resident_.shape).hidden); }

// What the model knows, of all choices that want it: under way when this returns.
Result<> Choosing::ask_for_known(std::span<const Choice> choices, std::vector<double>& known) const {
  cudaStream_t stream = resident_.stream.get();
  std::int64_t count = 0;
  for (const Choice& choice : choices) {
    if (choice.pooling == Pooling::none) continue;
    if (count == resident_.limits.step_rows_max)
      return invalid("more vectors are wanted than a step has rows");
    const RowPlace& place = steps_.place_of(choice.row);
    const bool is_sum = choice.pooling == Pooling::mean;
    steps_.forward().sum_known(count++, is_sum ? place.chunk_first : place.token,
                               is_sum ? place.chunk_tokens : 1, {stream, false});
  }
  if (count == 0) return {};
  if (auto done = steps_.launched(); !done) return done;
  known.resize(static_cast<std::size_t>(count) * known_stride());
  return checked(cudaMemcpyAsync(known.data(), resident_.scratch.known_sums, known.size() * sizeof(double),
                                 cudaMemcpyDeviceToHost, stream),
                 "reading what the model knows");
}

void Choosing::take_known(std::span<const Choice> choices, const std::vector<double>& known,
                          std::vector<Chosen>& chosen) const {
  auto row = known.begin();
  for (std::size_t at = 0; at < choices.size(); ++at) {
    if (choices[at].pooling == Pooling::none) continue;
    const auto end = row + static_cast<std::ptrdiff_t>(resident_.shape.hidden);
    if (choices[at].pooling == Pooling::mean) {
      chosen[at].hidden_sum.assign(row, end);
    } else {
      std::transform(row, end, std::back_inserter(chosen[at].hidden),
                     [](double number) { return static_cast<float>(number); });
    }
    row += static_cast<std::ptrdiff_t>(known_stride());
  }
}

Result<> Choosing::check_row(std::int32_t row) const {
  if (row < 0 || row >= steps_.rows()) return invalid("the last step has no row " + std::to_string(row));
  return {};
}

// Copied there from the device.
std::int32_t* Choosing::tokens_of(std::size_t slot) const {
  return reinterpret_cast<std::int32_t*>(resident_.memory.tokens.get()) + slot * 2 * resident_.padded_rows();
}

}  // namespace tutti::serve::cuda
