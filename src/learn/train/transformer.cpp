#include "learn/train/transformer.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "base/check.hpp"
#include "learn/recipe/memory.hpp"

namespace tutti::train {
namespace {

using plan::Action;
using plan::Message;

math::Slice slice_of(const Setup& setup, const Groups& groups, const View& table) {
  // The last slice may have less than the others, whose rows are padded alike.
  const std::int64_t whole = setup.shape.vocabulary;
  const std::int64_t each = (whole + groups.mesh.tensor - 1) / groups.mesh.tensor;
  const std::int64_t first = std::min(whole, each * groups.place.slice);
  TUTTI_CHECK(each <= table.rows);
  return {first, std::min(whole, first + each) - first};
}

}  // namespace

// ---- embedding

Embedding::Embedding(const Setup& setup, Groups& groups, Storage& tokens, Storage* positions)
    : setup_(setup), groups_(groups), tokens_(tokens), positions_(positions) {
  const model::Names names = model::names_of(setup.shape);
  table_ = tokens.view({model::weight_of(names.embedding)});
  if (positions != nullptr) position_table_ = positions->view({model::weight_of(names.positions)});
  slice_ = slice_of(setup, groups, table_);
}

std::int64_t Embedding::first_row() const {
  return setup_.rows() / groups_.mesh.tensor * groups_.place.slice;
}

at::Tensor Embedding::forward(const at::Tensor& tokens) {
  tokens_.open();
  at::Tensor x = groups_.tensor.scatter_rows(math::embed(tokens, tokens_.weight(table_), slice_.first));
  tokens_.close();
  if (positions_ != nullptr) {
    positions_->open();
    math::add_positions(x, positions_->weight(position_table_), first_row(), setup_.length);
    positions_->close();
  }
  return x;
}

void Embedding::backward(const at::Tensor& tokens, const at::Tensor& dx, bool last) {
  if (positions_ != nullptr) {
    math::add_positions_backward(dx, first_row(), setup_.length, positions_->gradient(position_table_));
    positions_->backward_done(last);
  }
  math::embed_backward(tokens, groups_.tensor.gather_rows(dx), slice_.first, tokens_.gradient(table_));
  tokens_.backward_done(last);
}

// ---- head

Head::Head(const Setup& setup, Groups& groups, Storage& norm, Storage& vocabulary, const std::string& matrix)
    : setup_(setup),
      groups_(groups),
      norm_(norm),
      vocabulary_(vocabulary),
      matrix_(vocabulary.view({matrix})),
      has_bias_(setup.shape.norm == model::Norm::layer) {
  const model::Names names = model::names_of(setup.shape);
  norm_weight_ = norm.view({model::weight_of(names.norm)});
  if (has_bias_) norm_bias_ = norm.view({model::bias_of(names.norm)});
  slice_ = slice_of(setup, groups, matrix_);
}

// Each slice has some of the logits of a row; what they need of each other is a maximum and two sums a row.
at::Tensor Head::loss_of(at::Tensor& logits, const at::Tensor& targets, double factor, bool with_gradients) {
  if (groups_.tensor.size() == 1) {
    return math::cross_entropy(logits, targets, factor, slice_, with_gradients).sum(at::kDouble);
  }
  at::Tensor maxima = math::row_maxima(logits, slice_);
  groups_.tensor.all_reduce(maxima, comm::Reduction::max);
  at::Tensor both = math::exponential_sums(logits, targets, maxima, slice_);
  groups_.tensor.all_reduce(both);
  if (with_gradients) math::cross_entropy_gradient(logits, targets, maxima, both[0], factor, slice_);
  return (both[0].log() - both[1]).sum(at::kDouble);
}

Head::Outcome Head::forward(const Stream& stream, const at::Tensor& targets, double factor,
                            bool with_gradients) {
  norm_.open();
  vocabulary_.open();
  const math::Norm normed =
      math::norm(stream.x, stream.added, norm_.weight(norm_weight_),
                 has_bias_ ? norm_.weight(norm_bias_) : at::Tensor(), setup_.shape.norm_epsilon);
  const at::Tensor x = groups_.tensor.gather_rows(normed.out);
  const at::Tensor matrix = vocabulary_.weight(matrix_);
  Outcome outcome{.loss = at::zeros({}, x.options().dtype(at::kDouble))};
  at::Tensor dnormed = with_gradients ? at::empty_like(x) : at::Tensor();
  const std::int64_t pieces =
      recipe::logit_pieces(x.size(0), matrix_.rows, x.is_cpu() ? recipe::Place::host : recipe::Place::gpu);
  for (std::int64_t piece = 0; piece < pieces; ++piece) {
    const std::int64_t begin = x.size(0) * piece / pieces;
    const std::int64_t end = x.size(0) * (piece + 1) / pieces;
    const at::Tensor some = x.slice(0, begin, end);
    at::Tensor logits = math::linear(some, matrix);
    outcome.loss += loss_of(logits, targets.slice(0, begin, end), factor, with_gradients);
    if (!with_gradients) continue;
    at::Tensor dsome = dnormed.slice(0, begin, end);
    at::mm_out(dsome, logits, matrix);
    vocabulary_.add_product(matrix_, logits, some);
  }
  if (with_gradients) {
    outcome.dx = math::norm_backward(normed, groups_.tensor.scatter_rows(dnormed), norm_.weight(norm_weight_),
                                     {}, norm_.gradient(norm_weight_),
                                     has_bias_ ? norm_.gradient(norm_bias_) : at::Tensor());
  }
  vocabulary_.close();
  norm_.close();
  return outcome;
}

at::Tensor Head::logits(const Stream& stream, std::int64_t position) {
  norm_.open();
  vocabulary_.open();
  const math::Norm normed =
      math::norm(stream.x, stream.added, norm_.weight(norm_weight_),
                 has_bias_ ? norm_.weight(norm_bias_) : at::Tensor(), setup_.shape.norm_epsilon);
  const at::Tensor rows = normed.out.view({setup_.batch, setup_.length, -1}).select(1, position).contiguous();
  at::Tensor logits = math::linear(rows, vocabulary_.weight(matrix_)).slice(1, 0, slice_.valid);
  vocabulary_.close();
  norm_.close();
  return logits;
}

// ---- the share of a rank

Transformer::Transformer(TransformerOptions options, Groups& groups)
    : options_(std::move(options)), groups_(groups), parameters_(groups, options_.keeping) {
  const auto units = model::units(options_.setup.shape);
  for (int part = 0; part < options_.parts; ++part) {
    build_part(plan::span_of(static_cast<int>(options_.setup.shape.layers), groups.mesh.pipeline,
                             options_.parts, groups.place.stage, part),
               units);
  }
}

void Transformer::build_part(const plan::Span& span, const std::vector<model::Unit>& units) {
  const Setup& setup = options_.setup;
  const bool tied = setup.shape.tied;
  const bool apart = tied && groups_.mesh.pipeline > 1;
  const model::Tensor& table = units.front().tensors.front();
  Part part;
  if (span.has_embedding) {
    Storage& tokens = parameters_.add({table}, apart ? Role::first_of_two : Role::single);
    if (tied) tied_ = &tokens;
    const bool positions = units.front().tensors.size() > 1;
    part.embedding.emplace(setup, groups_, tokens,
                           positions ? &parameters_.add({units.front().tensors[1]}) : nullptr);
  }
  part.blocks.reserve(static_cast<std::size_t>(span.layers));
  for (int layer = 0; layer < span.layers; ++layer) {
    const model::Unit& unit = units.at(static_cast<std::size_t>(1 + span.first_layer + layer));
    part.blocks.emplace_back(setup, parameters_.add(unit.tensors), groups_.tensor, unit);
  }
  if (span.has_head) {
    Storage& own = parameters_.add(units.back().tensors);
    if (apart) tied_ = &parameters_.add({table}, Role::second_of_two);
    part.head.emplace(setup, groups_, own, tied ? *tied_ : own,
                      tied ? table.name : model::weight_of(model::names_of(setup.shape).head));
  }
  parts_.push_back(std::move(part));
}

at::Tensor Transformer::forward(Part& part, const Microbatch& microbatch, const at::Tensor& x, Tape* tape,
                                double factor) {
  Stream stream{part.embedding ? part.embedding->forward(microbatch.tokens) : x, {}};
  if (tape != nullptr) tape->blocks.resize(part.blocks.size());
  for (std::size_t i = 0; i < part.blocks.size(); ++i) {
    if (i + 1 < part.blocks.size()) part.blocks[i + 1].storage().foresee();
    Block::Tape passing;
    stream = part.blocks[i].forward(stream, tape != nullptr ? tape->blocks[i] : passing);
  }
  if (!part.head) return stream.sum();
  Head::Outcome outcome = part.head->forward(stream, microbatch.targets, factor, tape != nullptr);
  loss_ += outcome.loss;
  if (tape != nullptr) tape->dx = std::move(outcome.dx);
  return {};
}

at::Tensor Transformer::backward(Part& part, const Microbatch& microbatch, Tape& tape, at::Tensor dy,
                                 bool last) {
  if (part.head) {
    dy = std::move(tape.dx);
    part.head->norm_storage().backward_done(last);
    // A tied embedding on another stage has nothing more to come here.
    if (tied_ != nullptr && !parts_.front().embedding) tied_->backward_done(last);
  }
  for (std::size_t i = part.blocks.size(); i-- > 0;) {
    if (i > 0) part.blocks[i - 1].storage().foresee();
    dy = part.blocks[i].backward(dy, tape.blocks[i]);
    part.blocks[i].storage().backward_done(last);
  }
  if (!part.embedding) return dy;
  part.embedding->backward(microbatch.tokens, dy, last);
  return {};
}

at::Tensor Transformer::receive(const Message& message) {
  Inbox& inbox = inboxes_[message.from];
  const auto key = [](const Message& m) {
    return std::tuple(static_cast<int>(m.kind), m.part, m.microbatch);
  };
  const auto post = [&] {
    const Setup& setup = options_.setup;
    at::Tensor data = at::empty({setup.rows() / groups_.mesh.tensor, setup.shape.hidden},
                                at::TensorOptions(options_.keeping.device).dtype(options_.keeping.type));
    const Message& next = inbox.expected.at(inbox.posted++);
    inbox.received[key(next)] = {groups_.pipeline.begin_receive(data, message.from), data};
  };
  auto found = inbox.received.find(key(message));
  while (found == inbox.received.end()) {
    post();
    found = inbox.received.find(key(message));
  }
  // The next one may arrive while this one is computed on.
  if (inbox.posted < inbox.expected.size() && inbox.received.size() == 1) post();
  found->second.first.wait();
  at::Tensor data = std::move(found->second.second);
  inbox.received.erase(found);
  return data;
}

void Transformer::send(const Message& message, const at::Tensor& data) {
  // What has arrived is let go of. The limit holds where the threads that carry it lag behind.
  std::erase_if(sends_, [](const Pending& pending) { return pending.done(); });
  const auto most =
      static_cast<std::size_t>(plan::sends_under_way_max(groups_.mesh.pipeline, options_.parts));
  while (sends_.size() >= most) {
    sends_.front().wait();
    sends_.pop_front();
  }
  sends_.push_back(groups_.pipeline.begin_send(data.contiguous(), message.to));
  sends_most_ = std::max(sends_most_, sends_.size());
}

void Transformer::act(const Action& action, const std::vector<Microbatch>& microbatches, double factor,
                      Pass pass) {
  const int stages = groups_.mesh.pipeline;
  const int stage = groups_.place.stage;
  const int piece = action.part * stages + stage;
  const int pieces = stages * options_.parts;
  const bool forwards = action.kind == Action::Kind::forward;
  Part& part = parts_.at(static_cast<std::size_t>(action.part));
  const Microbatch& microbatch = microbatches.at(static_cast<std::size_t>(action.microbatch));
  const int before = forwards ? piece - 1 : piece + 1;
  const int after = forwards ? piece + 1 : piece - 1;
  const auto exists = [&](int other) { return other >= 0 && other < pieces; };

  at::Tensor data;
  if (exists(before)) data = receive({action.kind, before % stages, stage, action.part, action.microbatch});
  const auto key = std::pair(action.part, action.microbatch);
  if (forwards) {
    data = forward(part, microbatch, data, pass == Pass::both ? &tapes_[key] : nullptr, factor);
  } else {
    const bool last = action.microbatch + 1 == static_cast<int>(microbatches.size());
    data = backward(part, microbatch, tapes_.at(key), data, last);
    tapes_.erase(key);
  }
  if (exists(after)) send({action.kind, stage, after % stages, after / stages, action.microbatch}, data);
}

double Transformer::run_schedule(const std::vector<Microbatch>& microbatches, double factor, Pass pass) {
  const int stages = groups_.mesh.pipeline;
  const int count = static_cast<int>(microbatches.size());
  const auto wanted = [&](Action::Kind kind) { return pass == Pass::both || kind == Action::Kind::forward; };
  loss_ = at::zeros({}, at::TensorOptions(options_.keeping.device).dtype(at::kDouble));
  inboxes_.clear();
  for (int other = 0; other < stages; ++other) {
    for (const Message& message : plan::messages_from(stages, options_.parts, count, other)) {
      if (message.to == groups_.place.stage && wanted(message.kind))
        inboxes_[other].expected.push_back(message);
    }
  }
  for (const Action& action : plan::schedule(stages, options_.parts, count, groups_.place.stage)) {
    if (wanted(action.kind)) act(action, microbatches, factor, pass);
  }
  for (Pending& pending : sends_) pending.wait();
  sends_.clear();
  return loss_.item<double>();
}

double Transformer::run(const std::vector<Microbatch>& microbatches, double factor) {
  return run_schedule(microbatches, factor, Pass::both);
}

double Transformer::evaluate(const std::vector<Microbatch>& microbatches) {
  return run_schedule(microbatches, 0, Pass::forward);
}

at::Tensor Transformer::next_logits(const at::Tensor& tokens, std::int64_t position) {
  TUTTI_CHECK(groups_.mesh.size() == 1);
  Part& part = parts_.front();
  Stream stream{part.embedding->forward(tokens), {}};
  for (Block& block : part.blocks) {
    Block::Tape passing;
    stream = block.forward(stream, passing);
  }
  return part.head->logits(stream, position);
}

}  // namespace tutti::train
