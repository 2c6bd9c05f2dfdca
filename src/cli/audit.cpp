// `tutti audit`: who changed what and who was refused what, and whether the log of that is whole.
#include <cstdio>
#include <functional>

#include <nlohmann/json.hpp>

#include "base/clock/clock.hpp"
#include "base/files/files.hpp"
#include "base/text.hpp"
#include "cli/cluster.hpp"
#include "cli/commands.hpp"
#include "cli/local_time.hpp"
#include "cli/terminal.hpp"
#include "cli/text_table.hpp"
#include "control/audit/shelf.hpp"

namespace tutti::cli {
namespace {

using nlohmann::json;

constexpr Duration since_default = 24h;

// "NUMBER:HASH"
Result<audit::Head> parse_head(const std::string& text) {
  const std::size_t colon = text.find(':');
  const auto number = parse_id_number(text.substr(0, colon));
  if (colon == std::string::npos || !number || *number == 0)
    return invalid("'" + text.substr(0, 80) + "' is none")
        .within("--head")
        .remedy("it is NUMBER:HASH, as `tutti audit --verify` has printed it");
  return audit::Head{*number, text.substr(colon + 1)};
}

// Looks at one line after the other: is the chain whole?
class Verifier {
 public:
  explicit Verifier(std::optional<audit::Head> expected) : expected_(std::move(expected)) {}

  Result<> look(const std::string& line) {
    // Of the first line of all nothing comes before; what came before others may have been removed by its
    // age.
    if (!head_ && line.starts_with("{\"n\":1,")) head_ = audit::Head();
    auto head = audit::check_line(line, head_);
    if (!head) return std::move(head).error();
    if (first_ == 0) first_ = head->last;
    if (expected_ && head->last == expected_->last) {
      if (head->hash != expected_->hash)
        return failed("line " + std::to_string(head->last) + " is another one than it was: its hash is " +
                      head->hash);
      is_met_ = true;
    }
    head_ = *std::move(head);
    return {};
  }

  Result<std::string> verdict(bool as_json) const {
    if (expected_ && !is_met_)
      return failed("line " + std::to_string(expected_->last) + " is not there: the log " +
                    (first_ == 0 ? "is empty"
                                 : "goes from line " + std::to_string(first_) + " to line " +
                                       std::to_string(head_->last)));
    const std::string head = head_ ? std::to_string(head_->last) + ":" + head_->hash : "";
    if (as_json) {
      json verdict{{"whole", true}, {"first", first_}, {"last", head_ ? head_->last : 0}, {"head", head}};
      return verdict.dump() + "\n";
    }
    if (first_ == 0) return std::string("the audit log is empty\n");
    std::string text = "lines " + std::to_string(first_) + " to " + std::to_string(head_->last) +
                       " are whole, and each follows the one before it\n";
    if (first_ > 1) text += "what came before line " + std::to_string(first_) + " is not kept here\n";
    return text + "head " + head + "\n";
  }

 private:
  std::optional<audit::Head> expected_;
  std::optional<audit::Head> head_;
  std::uint64_t first_ = 0;
  bool is_met_ = false;
};

std::string name_of(const json& line) {
  const std::string who = line.value("who", "");
  return who.empty() ? "-" : who;
}

std::string deed_of(const json& line) {
  const std::string what = line.value("what", "");
  return line.value("verb", "") + " " + line.value("object", "") + (what.empty() ? "" : ": " + what);
}

std::string outcome_of(const json& line) {
  if (const std::string refused = line.value("refused", ""); !refused.empty()) return "refused: " + refused;
  const std::string before = line.value("before", "");
  std::string after = line.value("after", "");
  if (after == line.value("what", "")) return "done";
  if (before == after) return before.empty() ? "done" : "still " + after;
  if (before.empty()) return after;
  return before + " -> " + (after.empty() ? "gone" : after);
}

class Audit final : public Command {
 public:
  void declare(config::Flags& flags) override {
    flags.add("since", since_, "a time ago (7d), a date (2026-11-15, in UTC), or `all` (default: 24h)");
    flags.add("user", user_, "only what was asked for with a token of his");
    flags.add("verify", verify_, "look whether all that is kept is whole");
    flags.add("head", head_, "with --verify: NUMBER:HASH as it was printed before; that line is to be there");
    flags.add("file", files_, "with --verify: look at these files, the oldest first, and at no cluster");
    flags.add("json", json_, "the lines as they are, each of which is JSON");
  }

  Result<int> run() override {
    if (!verify_ && (!head_.empty() || !files_.empty()))
      return invalid("--head and --file are for `tutti audit --verify`").within("audit");
    if (verify_ && (!since_.empty() || !user_.empty()))
      return invalid("a chain is verified as a whole: without --since and --user").within("audit");
    auto done = verify_ ? verify() : show();
    if (!done) return std::move(done).error().within("audit");
    return done;
  }

 private:
  using Each = std::function<Result<>(const std::string& line)>;

  Result<int> verify() const {
    std::optional<audit::Head> expected;
    if (!head_.empty()) {
      auto parsed = parse_head(head_);
      if (!parsed) return std::move(parsed).error();
      expected = *std::move(parsed);
    }
    Verifier verifier(std::move(expected));
    const Each look = [&](const std::string& line) { return verifier.look(line); };
    const auto looked = files_.empty() ? each_of_cluster("", look) : each_of_files(look);
    if (!looked) return Error(looked.error());
    const auto verdict = verifier.verdict(json_);
    if (!verdict) return Error(verdict.error());
    print_text(*verdict);
    return exit_success;
  }

  Result<> each_of_files(const Each& each) const {
    for (const std::string& file : files_) {
      const auto text =
          files::read_existing_file(file, static_cast<std::size_t>(audit::read_bytes_max.count()));
      if (!text) return Error(text.error());
      std::string_view rest = *text;
      while (!rest.empty()) {
        const std::size_t end = rest.find('\n');
        if (auto fine = each(std::string(rest.substr(0, end))); !fine)
          return std::move(fine).error().within(file);
        rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
      }
    }
    return {};
  }

  static Result<> each_of_cluster(const std::string& filter, const Each& each) {
    auto cluster = Cluster::find();
    if (!cluster) return std::move(cluster).error();
    std::string after = "0";
    for (;;) {
      auto page = cluster->get("audit?limit=5000&after=" + after + filter);
      if (!page) return std::move(page).error();
      for (const auto& line : page->value("lines", json::array())) {
        if (auto fine = each(line.get<std::string>()); !fine) return fine;
      }
      after = page->value("next", "");
      if (after.empty()) return {};
    }
  }

  // As the log writes times, of which the beginning of one is enough.
  Result<std::string> since() const {
    if (since_ == "all") return std::string();
    if (since_.size() >= 10 && since_[4] == '-') return since_;
    auto ago = since_.empty() ? Result<Duration>(since_default) : parse_duration(since_);
    if (!ago) return std::move(ago).error().within("--since").remedy("such as 7d, 2026-11-15, or all");
    return format_instant(now_on_the_wall() - *ago);
  }

  Result<int> show() const {
    const auto from = since();
    if (!from) return Error(from.error());
    std::string filter = "&since=" + url_encode(*from);
    if (!user_.empty()) filter += "&user=" + url_encode(user_);
    TextTable table({"TIME", "WHO", "FROM", "WHAT", "RESULT"});
    std::uint64_t left_out = 0;
    const auto shown = each_of_cluster(filter, [&](const std::string& text) -> Result<> {
      if (json_) {
        std::printf("%s\n", text.c_str());
        return {};
      }
      const json line = json::parse(text, nullptr, false);
      if (!line.is_object()) {
        table.add({"?", "?", "?", "a line that is none", "`tutti audit --verify` says which"});
        return {};
      }
      left_out += line.value("left_out", std::uint64_t{0});
      const std::string address = line.value("from", "");
      table.add({local_time(line.value("at", "")), name_of(line), address.empty() ? "-" : address,
                 deed_of(line), outcome_of(line)});
      return {};
    });
    if (!shown) return Error(shown.error());
    if (json_) return exit_success;
    print_text(table.text());
    if (left_out > 0)
      print_note(std::to_string(left_out) +
                 " refusals have no line of their own: there were more than are written down");
    return exit_success;
  }

  std::string since_;
  std::string user_;
  bool verify_ = false;
  std::string head_;
  std::vector<std::string> files_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_audit() { return std::make_unique<Audit>(); }

}  // namespace tutti::cli
