// `tutti checkpoint`: what a training has saved, whether it is sound, and as files that others load.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>

#include <nlohmann/json.hpp>

#include "base/files/files.hpp"
#include "cli/commands.hpp"
#include "cli/local_time.hpp"
#include "cli/orderly_end.hpp"
#include "cli/progress_bar.hpp"
#include "cli/terminal.hpp"
#include "cli/text_table.hpp"
#include "learn/checkpoint/export.hpp"
#include "learn/checkpoint/files.hpp"
#include "learn/checkpoint/folder.hpp"
#include "learn/checkpoint/read.hpp"
#include "learn/dataset/dataset.hpp"
#include "learn/gguf/export.hpp"
#include "learn/model/shape.hpp"
#include "learn/recipe/recipe.hpp"
#include "learn/tokenizer/settings.hpp"
#include "learn/tokenizer/tokenizer.hpp"

namespace tutti::cli {
namespace {

using checkpoint::Listed;
using nlohmann::json;

constexpr std::size_t tokenizer_bytes_max = std::size_t{256} << 20;

std::string size_text(std::uint64_t bytes) { return format_bytes(Bytes(static_cast<std::int64_t>(bytes))); }

Result<safetensors::Type> parse_type(std::string_view word) {
  if (word == "f32") return safetensors::Type::f32;
  if (word == "bf16") return safetensors::Type::bf16;
  if (word == "f16") return safetensors::Type::f16;
  return invalid("'" + std::string(word) + "' is no type of weights").remedy("one of: f32, bf16, f16");
}

// What the path names: a checkpoint, a folder of them, or a run that has such a folder.
Result<std::vector<Listed>> find_checkpoints(const std::string& path) {
  if (!checkpoint::is_folder(path)) return invalid("there is no folder " + path);
  std::error_code ignored;
  if (std::filesystem::exists(path + "/" + checkpoint::manifest_name, ignored)) {
    return std::vector{checkpoint::describe(path)};
  }
  const std::string of_run = path + "/checkpoints";
  return checkpoint::list(checkpoint::is_folder(of_run) ? of_run : path);
}

// That of the data it was trained on; "" if the data is not there any more.
std::string tokenizer_of_run(const checkpoint::State& state) {
  const auto recipe = recipe::parse_recipe(state.recipe);
  if (!recipe) return "";
  const auto data = dataset::Dataset::open(recipe->data);
  return data ? data->tokenizer_json() : "";
}

class CheckpointCommand final : public Command {
 public:
  void declare(config::Flags& flags) override {
    flags.add_word("ls|verify|export", what_,
                   "list checkpoints, read all their bytes, or write one for others");
    flags.add_word("DIR", path_,
                   "a run's folder, its checkpoints, or one of them; export takes the newest of several");
    flags.add("json", json_, "ls and verify: print a JSON list");
    flags.add("out", out_, "export: the folder to make; with --format gguf, the file");
    flags.add("format", format_,
              "export: hf (the default), the files of Hugging Face; gguf, the file of llama.cpp");
    flags.add(
        "type", "TYPE",
        [this](std::string_view word) -> Result<> {
          auto type = parse_type(word);
          if (!type) return std::move(type).error();
          options_.type = *type;
          return {};
        },
        "export: f32 (the default), bf16 or f16");
    flags.add(
        "tokenizer", tokenizer_,
        "export: a tokenizer.json to put beside the weights, or into the file; bytes for the one without "
        "a file, none for none (default: that of the run's data)");
  }

  Result<int> run() override {
    if (what_ != "ls" && what_ != "verify" && what_ != "export") {
      return invalid("unknown action '" + what_ + "'").remedy("one of: ls, verify, export");
    }
    auto found = find_checkpoints(path_);
    if (!found) return std::move(found).error().within("checkpoint");
    if (what_ == "ls") return show(*found);
    if (found->empty()) return failed("there is no checkpoint in " + path_).within("checkpoint");
    auto done = what_ == "verify" ? verify(*found) : write(*found);
    if (!done) return std::move(done).error().within("checkpoint");
    return done;
  }

 private:
  int show(const std::vector<Listed>& all) const {
    if (json_) {
      json list = json::array();
      for (const Listed& entry : all) list.push_back(to_json(entry));
      print_json(list);
      return exit_success;
    }
    if (all.empty()) {
      print_note("there is no checkpoint in " + path_);
      return exit_success;
    }
    TextTable table({"STEP", "SIZE", "FILES", "ATTEMPT", "MESH", "NEXT LOSS", "WRITTEN", ""});
    for (const Listed& entry : all) {
      const std::string step = std::to_string(entry.step);
      if (!entry.problem.empty()) {
        table.add({step, "", "", "", "", "", "", "damaged: " + entry.problem});
        continue;
      }
      table.add({step, size_text(entry.bytes), std::to_string(entry.files), std::to_string(entry.attempt),
                 entry.mesh, std::isnan(entry.loss) ? "" : short_number(entry.loss),
                 local_date_time(format_instant(entry.written_at)), ""});
    }
    print_text(table.text());
    return exit_success;
  }

  // Paths may hold bytes that are no text.
  static void print_json(const json& list) {
    std::printf("%s\n", list.dump(-1, ' ', false, json::error_handler_t::replace).c_str());
  }

  // The loss is that of the step that follows; null if it is not known.
  static json to_json(const Listed& entry) {
    if (!entry.problem.empty())
      return {{"step", entry.step}, {"path", entry.path}, {"problem", entry.problem}};
    return {{"step", entry.step},       {"path", entry.path},
            {"bytes", entry.bytes},     {"files", entry.files},
            {"attempt", entry.attempt}, {"mesh", entry.mesh},
            {"next_loss", entry.loss},  {"written_at", format_instant(entry.written_at)}};
  }

  // All of them, whatever is found on the way: the exit code tells whether something was.
  Result<int> verify(const std::vector<Listed>& all) const {
    json list = json::array();
    bool sound = true;
    for (const Listed& entry : all) {
      const std::string problem = entry.problem.empty() ? damage_in(entry) : entry.problem;
      if (!problem.empty() && !checkpoint::is_folder(entry.path)) {
        print_note("step " + std::to_string(entry.step) + " was removed meanwhile: its run goes on");
        continue;
      }
      sound = sound && problem.empty();
      if (json_) {
        list.push_back(
            {{"step", entry.step}, {"path", entry.path}, {"sound", problem.empty()}, {"problem", problem}});
      } else if (problem.empty()) {
        std::printf("step %lld is sound: %s in %zu files\n", static_cast<long long>(entry.step),
                    size_text(entry.bytes).c_str(), entry.files);
      } else {
        print_note(problem);
      }
    }
    if (json_) print_json(list);
    return sound ? exit_success : exit_failed;
  }

  static std::string damage_in(const Listed& entry) {
    const auto opened = checkpoint::Checkpoint::open(entry.path);
    if (!opened) return opened.error().text();
    if (auto held = opened->hold(); !held) return held.error().text();
    ProgressBar bar("verifying step " + std::to_string(entry.step));
    const auto verified = opened->verify([&](auto done, auto of) { bar.show_bytes(done, of); });
    return verified ? "" : verified.error().text();
  }

  // A training that goes on may remove it before it is held: then there is a newer one.
  Result<checkpoint::Checkpoint> hold_newest(const std::vector<Listed>& all) const {
    auto opened = checkpoint::Checkpoint::open(all.back().path);
    const auto held = opened ? opened->hold() : Result<>(opened.error());
    if (held) return opened;
    const auto now = find_checkpoints(path_);
    if (!now || now->empty() || now->back().path == all.back().path) return held.error();
    return hold_newest(*now);
  }

  Result<int> write(const std::vector<Listed>& all) {
    const bool as_gguf = format_ == "gguf";
    if (!as_gguf && format_ != "hf")
      return invalid("unknown format '" + format_ + "'").remedy("one of: hf, gguf");
    if (out_.empty()) {
      return as_gguf ? invalid("export needs a file to write to").remedy("--out FILE.gguf")
                     : invalid("export needs a folder to write to").remedy("--out DIR");
    }
    auto opened = hold_newest(all);
    if (!opened) return std::move(opened).error();
    if (auto read = read_tokenizer(opened->state()); !read) return std::move(read).error();
    {
      ProgressBar bar("exporting step " + std::to_string(opened->state().step));
      const OrderlyEnd orderly_end;
      options_.progress = [&](auto done, auto of) {
        bar.show_bytes(done, of);
        return !interrupted;
      };
      auto done = as_gguf ? gguf::export_gguf(*opened, out_, options_)
                          : checkpoint::export_hf(*opened, out_, options_);
      if (!done && interrupted) {
        print_note("checkpoint export : interrupted");
        return exit_interrupted;
      }
      if (!done) return std::move(done).error();
    }
    std::printf("step %lld is in %s\n", static_cast<long long>(opened->state().step), out_.c_str());
    if (options_.tokenizer.empty())
      print_note("there is no tokenizer with it; --tokenizer FILE adds one, or bytes");
    return exit_success;
  }

  Result<> read_tokenizer(const checkpoint::State& state) {
    if (tokenizer_ == "none") return {};
    if (tokenizer_.empty()) {
      options_.tokenizer = tokenizer_of_run(state);
    } else if (tokenizer_ == "bytes") {
      options_.tokenizer = tokenizer::Tokenizer::bytes().json();
    } else {
      auto text = files::read_file(tokenizer_, tokenizer_bytes_max);
      if (!text) return std::move(text).error();
      if (!*text) return invalid("there is no file " + tokenizer_);
      options_.tokenizer = std::move(**text);
    }
    if (options_.tokenizer.empty()) return {};
    if (auto fine = check_tokenizer(state); !fine) return fine;
    const bool of_a_folder = !tokenizer_.empty() && tokenizer_ != "bytes";
    return of_a_folder ? read_chat_template() : Result<>();
  }

  // What stands beside the tokenizer says how a conversation is written.
  Result<> read_chat_template() {
    const std::string folder = std::filesystem::path(tokenizer_).parent_path() / "";
    const auto read = [&](const char* name, std::size_t bytes_max) -> Result<std::string> {
      auto text = files::read_file(folder + name, bytes_max);
      if (!text) return std::move(text).error();
      return std::move(*text).value_or("");
    };
    const auto config = read("tokenizer_config.json", tokenizer::settings_bytes_max);
    if (!config) return config.error();
    const auto own = read("chat_template.jinja", tokenizer::chat_template_bytes_max);
    if (!own) return own.error();
    const auto parsed = tokenizer::Tokenizer::parse(options_.tokenizer);
    if (!parsed) return Error(parsed.error()).within(tokenizer_);
    const auto settings =
        tokenizer::read_settings({.tokenizer_config = *config, .chat_template = *own}, *parsed);
    if (!settings) return Error(settings.error()).within("beside " + tokenizer_);
    if (const auto* found = tokenizer::find_template(*settings, false)) options_.chat_template = found->text;
    return {};
  }

  // Whoever loads the export would find tokens that the model has not.
  Result<> check_tokenizer(const checkpoint::State& state) const {
    const auto shape = model::parse_config(state.model_config);
    if (!shape) return shape.error();
    const auto read = tokenizer::Tokenizer::parse(options_.tokenizer);
    const std::string which = tokenizer_.empty() ? "the tokenizer of the run's data" : tokenizer_;
    if (!read) return Error(read.error()).within(which);
    if (read->vocabulary() > shape->vocabulary) {
      return invalid("it has " + std::to_string(read->vocabulary()) + " tokens, and the model " +
                     std::to_string(shape->vocabulary))
          .within(which)
          .remedy("take the one that the run's data was packed with");
    }
    if (!tokenizer_.empty()) warn_of_another(*read, tokenizer_of_run(state), shape->vocabulary);
    return {};
  }

  // A model may have room for more tokens than it was taught. Which ones it was, the run's own tokenizer
  // knows; where that is not there any more, all of the model's are taken for taught.
  void warn_of_another(const tokenizer::Tokenizer& given, const std::string& own_json,
                       std::int64_t of_model) const {
    const auto own = own_json.empty() ? Result<tokenizer::Tokenizer>(failed("none"))
                                      : tokenizer::Tokenizer::parse(own_json);
    const std::int64_t taught = own ? own->vocabulary() : of_model;
    if (given.vocabulary() < taught) {
      print_note(tokenizer_ + " has " + std::to_string(given.vocabulary()) + " tokens, and " +
                 (own ? "that of the run's data " : "the model ") + std::to_string(taught) +
                 ": the model may say what it cannot write");
    }
    for (std::int64_t token = 0; own && token < std::min(given.vocabulary(), taught); ++token) {
      const auto id = static_cast<std::uint32_t>(token);
      if (given.token_bytes(id) == own->token_bytes(id)) continue;
      print_note(tokenizer_ + " is not that of the run's data: token " + std::to_string(token) +
                 " stands for another text");
      return;
    }
  }

  std::string what_;
  std::string path_;
  bool json_ = false;
  std::string out_;
  std::string format_ = "hf";
  std::string tokenizer_;
  checkpoint::ExportOptions options_;
};

}  // namespace

std::unique_ptr<Command> make_checkpoint() { return std::make_unique<CheckpointCommand>(); }

}  // namespace tutti::cli
