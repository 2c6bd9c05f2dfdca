#include "control/controller/audit_keeper.hpp"

#include <chrono>
#include <future>
#include <memory>

#include "base/log/log.hpp"

namespace tutti::controller {
namespace {

constexpr auto answer_patience = std::chrono::seconds(30);

std::string text_of(const cluster::AuditLog& log) {
  std::string text;
  text.reserve(log.bytes);
  for (const auto& [first, lines] : log.lines) text += lines;
  return text;
}

}  // namespace

// Each cluster has files of its own: a new store on an old folder begins a log anew, and spoils none.
Result<> AuditKeeper::start() {
  shelf_folder_ = options_.folder + "/audit-" + core_.cluster_id();
  auto shelf = audit::Shelf::open(shelf_folder_);
  if (!shelf) return std::move(shelf).error();
  shelf_.emplace(*std::move(shelf));
  bytes_ = audit::shelf_bytes(shelf_folder_).count();
  core_.happen(cluster::AuditFound{shelf_->head()}, nullptr);
  thread_ = std::thread([this] { run(); });
  return {};
}

void AuditKeeper::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  woken_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void AuditKeeper::run() {
  for (;;) {
    shelve();
    trim();
    std::unique_lock lock(mutex_);
    if (woken_.wait_for(lock, audit_shelved_every, [this] { return stopping_; })) return;
  }
}

std::optional<cluster::AuditLog> AuditKeeper::waiting() const {
  auto answer = std::make_shared<std::promise<std::optional<cluster::AuditLog>>>();
  auto coming = answer->get_future();
  core_.ask([answer](const cluster::State& state, const wire::StoreHealth& health) {
    answer->set_value(health.state_is_stored ? std::optional(state.audit) : std::nullopt);
  });
  if (coming.wait_for(answer_patience) != std::future_status::ready) return std::nullopt;
  return coming.get();
}

void AuditKeeper::shelve() {
  const auto log = waiting();
  if (!log) return;
  if (log->head.last <= shelf_->head().last) {
    // It was said, and the store could not be written then.
    if (log->lines.size() > 1) core_.happen(cluster::AuditShelved{shelf_->head().last}, nullptr);
    return;
  }
  if (log->lines.begin()->first > shelf_->head().last + 1)
    log::error("the audit log has a gap: lines {} to {} are in no file", shelf_->head().last + 1,
               log->lines.begin()->first - 1);
  const auto written = shelf_->append(text_of(*log));
  const std::string trouble = written ? "" : written.error().text();
  if (trouble != trouble_ && !trouble.empty())
    log::error("{}; until it can be, its lines wait in the store", trouble);
  if (trouble.empty() && !trouble_.empty()) log::warning("the audit log is written to its files again");
  trouble_ = trouble;
  if (const std::string amiss = shelf_->take_amiss(); !amiss.empty()) log::error("the audit log: {}", amiss);
  if (!written) return;
  bytes_ = audit::shelf_bytes(shelf_folder_).count();
  core_.happen(cluster::AuditShelved{shelf_->head().last}, nullptr);
}

// A clock that is wrong for a moment costs nothing, nor one that is wrong when the machine starts.
void AuditKeeper::trim() {
  const Instant date = date_.now();
  const Instant now = now_steady();
  if (now < next_trim_) return;
  if (next_trim_ == Instant()) began_ = now;
  next_trim_ = now + audit_trimmed_every;
  const bool knows_date = now - began_ >= audit_date_believed_after;
  const Instant oldest =
      options_.age_max == Duration::zero() || !knows_date ? Instant() : date - options_.age_max;
  if (const auto trimmed = shelf_->trim(options_.bytes_max, oldest); !trimmed)
    log::warning("old parts of the audit log stay: {}", trimmed.error().text());
  bytes_ = audit::shelf_bytes(shelf_folder_).count();
}

// What leaves the store is in a file by then: so the store is looked at first.
Result<wire::AuditPage> AuditKeeper::read(const audit::Query& query) const {
  const auto log = waiting();
  if (!log) return failed("what is in the store is not known now").remedy("try again when its disk is well");
  auto page = audit::read_page(shelf_folder_, text_of(*log), query);
  if (!page) return std::move(page).error();
  return wire::AuditPage{std::move(page->lines), page->next, log->head};
}

void AuditKeeper::tell(wire::Kept& kept) const {
  kept.audit = Bytes(bytes_.load());
  kept.audit_max = options_.bytes_max;
  kept.audit_age_max = options_.age_max;
}

}  // namespace tutti::controller
