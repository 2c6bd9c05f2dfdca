// `tutti data`: text to tokens on the disk, tokenizers learned from text, and what a dataset holds.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>

#include <nlohmann/json.hpp>

#include "base/clock/clock.hpp"
#include "base/files/files.hpp"
#include "base/files/inside.hpp"
#include "base/files/names.hpp"
#include "base/text.hpp"
#include "cli/commands.hpp"
#include "cli/orderly_end.hpp"
#include "cli/progress_bar.hpp"
#include "cli/terminal.hpp"
#include "cli/text_files.hpp"
#include "cli/text_table.hpp"
#include "learn/dataset/dataset.hpp"
#include "learn/dataset/writer.hpp"
#include "learn/tokenizer/definition.hpp"
#include "learn/tokenizer/tokenizer.hpp"
#include "learn/tokenizer/train.hpp"

namespace tutti::cli {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr std::int64_t vocabulary_default = 8192;
constexpr std::size_t piece_bytes = std::size_t{1} << 20U;  // between two looks at Ctrl-C

std::string bytes_text(std::uint64_t bytes) { return format_bytes(Bytes(static_cast<std::int64_t>(bytes))); }

Result<tokenizer::Tokenizer> load_tokenizer(const std::string& name) {
  if (name == "bytes") return tokenizer::Tokenizer::bytes();
  auto text = files::read_existing_file(name, tokenizer::tokenizer_json_bytes_max);
  if (!text) return std::move(text).error().remedy("`bytes`, or a path to a tokenizer.json");
  return tokenizer::Tokenizer::parse(*text);
}

bool is_tokenizer(const std::string& file) {
  const auto text = files::read_existing_file(file, tokenizer::tokenizer_json_bytes_max);
  return text && tokenizer::Tokenizer::parse(*text);
}

// All texts that a user named, one after the other.
class Texts {
 public:
  static Result<Texts> find(const std::vector<std::string>& paths) {
    auto files = find_text_files(paths);
    if (!files) return std::move(files).error();
    return Texts(std::move(*files));
  }

  std::uint64_t bytes() const { return bytes_; }
  std::size_t skipped() const { return skipped_; }

  // The first that lies in the folder, if any does.
  const std::string* first_inside(const std::string& folder) const {
    std::string before;  // files of one folder follow each other
    for (const auto& file : files_) {
      const std::string parent = std::filesystem::path(file.path).parent_path().string();
      if (&file != &files_.front() && parent == before) continue;
      if (files::is_inside(file.path, folder)) return &file.path;
      before = parent;
    }
    return nullptr;
  }

  // Ends with the first one that is not taken. Ctrl-C is a failure.
  template <class Take>
  Result<> each(Take take) {
    for (const auto& file : files_) {
      if (interrupted) return failed("interrupted");
      auto text = read_text_file(file);
      if (!text) return std::move(text).error();
      if (*text) {
        if (auto taken = take(**text); !taken) return taken;
      } else {
        skip(file);
      }
    }
    return {};
  }

  // Data that is not there should not go unnoticed.
  void tell_skipped() const {
    if (skipped_ == 0) return;
    std::fprintf(stderr, "tutti: %zu file%s left out, not being UTF-8 text; the first is %s\n", skipped_,
                 skipped_ == 1 ? " is" : "s are", files::shown(first_skipped_).c_str());
  }

 private:
  explicit Texts(std::vector<TextFile> files) : files_(std::move(files)) {
    for (const auto& file : files_) bytes_ += file.bytes;
  }

  void skip(const TextFile& file) {
    if (skipped_++ == 0) first_skipped_ = file.path;
    bytes_ -= std::min(bytes_, file.bytes);
  }

  std::vector<TextFile> files_;
  std::uint64_t bytes_ = 0;
  std::size_t skipped_ = 0;
  std::string first_skipped_;
};

// A long text in pieces that have the tokens of the whole. Ctrl-C is a failure.
template <class Take>
Result<> in_pieces(const tokenizer::Tokenizer& tokenizer, std::string_view text, Take take) {
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = tokenizer.next_cut(text, begin + piece_bytes);
    if (auto taken = take(text.substr(begin, end - begin)); !taken) return taken;
    if (interrupted) return failed("interrupted");
    begin = end;
  }
  return {};
}

// Text on its way into a dataset.
class Packing {
 public:
  Packing(const tokenizer::Tokenizer& tokenizer, dataset::Writer& writer, const Texts& texts)
      : tokenizer_(tokenizer), writer_(writer), texts_(texts) {}

  Result<> add(std::string_view text) {
    auto added = in_pieces(tokenizer_, text, [this](std::string_view piece) {
      bytes_ += piece.size();
      bar_.show_bytes(bytes_, texts_.bytes());
      return writer_.append(tokenizer_.encode(piece));
    });
    return added ? writer_.end_document() : added;
  }

  std::uint64_t bytes() const { return bytes_; }

 private:
  const tokenizer::Tokenizer& tokenizer_;
  dataset::Writer& writer_;
  const Texts& texts_;
  std::uint64_t bytes_ = 0;
  ProgressBar bar_{"packing"};
};

// A new file in its place at once, or none.
Result<> put_file(const std::string& path, const std::string& content) {
  const std::string part = path + ".part-" + std::to_string(::getpid());
  auto written = files::write_new_file(part, content);
  if (written && ::rename(part.c_str(), path.c_str()) != 0)
    written = failed_errno("cannot write " + files::shown(path), errno);
  if (!written) ::unlink(part.c_str());
  return written;
}

class Data final : public Command {
 public:
  void declare(config::Flags& flags) override {
    flags.add_word(
        "pack|tokenizer|show", what_,
        "pack: text to tokens in a dataset; tokenizer: learns one from text; show: what a dataset holds");
    flags.add_words("PATH…", paths_, "files of text, or folders with such files; for show the dataset");
    flags.add("tokenizer", tokenizer_, "pack: bytes, or a tokenizer.json");
    flags.add("out", out_, "pack: the folder of the new dataset; tokenizer: the new file");
    flags.add("vocabulary", vocabulary_, "tokenizer: how many tokens it has (default: 8192)",
              {.min = tokenizer::trained_vocabulary_min, .max = tokenizer::trained_vocabulary_max});
    flags.add("replace", replace_, "pack, tokenizer: write in place of what is there already");
    flags.add("verify", verify_, "show: compare all of it with its hashes");
    flags.add("json", json_, "one JSON object for scripts");
  }

  Result<int> run() override {
    if (auto fits = check_flags(); !fits) return std::move(fits).error().within("data");
    const OrderlyEnd orderly_end;
    auto done = what_ == "pack" ? pack() : what_ == "tokenizer" ? learn() : show();
    if (!done && interrupted) {
      std::fprintf(stderr, "tutti: data %s : interrupted\n", what_.c_str());
      return exit_interrupted;
    }
    if (!done) return std::move(done).error().within("data " + what_);
    return exit_success;
  }

 private:
  Result<> check_flags() const {
    struct Use {
      const char* flag;
      bool given;
      std::vector<std::string> actions;
      bool required;
    };
    const std::array uses{Use{"--tokenizer", !tokenizer_.empty(), {"pack"}, true},
                          Use{"--out", !out_.empty(), {"pack", "tokenizer"}, true},
                          Use{"--vocabulary", vocabulary_ != 0, {"tokenizer"}, false},
                          Use{"--replace", replace_, {"pack", "tokenizer"}, false},
                          Use{"--verify", verify_, {"show"}, false}};
    const std::vector<std::string> actions{"pack", "tokenizer", "show"};
    if (std::find(actions.begin(), actions.end(), what_) == actions.end())
      return invalid("unknown word '" + what_.substr(0, 64) + "'")
          .remedy(did_you_mean(what_, actions))
          .remedy("one of: pack, tokenizer, show");
    for (const Use& use : uses) {
      const bool fits = std::find(use.actions.begin(), use.actions.end(), what_) != use.actions.end();
      if (use.given && !fits)
        return invalid(std::string(use.flag) + " is not for `tutti data " + what_ + "`");
      if (fits && use.required && !use.given)
        return invalid(std::string(use.flag) + " is missing")
            .remedy("`tutti help data` explains the command");
    }
    if (what_ == "show" && paths_.size() > 1) return invalid("one dataset at a time");
    return {};
  }

  // ---- pack

  Result<> pack() const {
    const auto begin = Clock::now();
    auto tokenizer = load_tokenizer(tokenizer_);
    if (!tokenizer) return std::move(tokenizer).error();
    const auto end_of_text = tokenizer->end_of_text();
    if (!end_of_text)
      return invalid("the tokenizer has no end-of-text token")
          .remedy("such as <|endoftext|>, among its added_tokens");
    auto texts = Texts::find(paths_);
    if (!texts) return std::move(texts).error();
    if (auto apart = check_apart(*texts); !apart) return apart;
    auto writer = dataset::Writer::create({.folder = out_,
                                           .tokenizer_json = tokenizer->json(),
                                           .vocabulary = tokenizer->vocabulary(),
                                           .end_of_text = *end_of_text,
                                           .replace = replace_});
    if (!writer) return std::move(writer).error();
    const auto bytes = pack_all(*tokenizer, *writer, *texts);
    if (!bytes) return bytes.error();
    texts->tell_skipped();
    if (auto finished = writer->finish(); !finished) return std::move(finished).error();
    return tell_packed(*bytes, texts->skipped(), seconds_since(begin));
  }

  // What a dataset is made of is not part of the one that it replaces.
  Result<> check_apart(const Texts& texts) const {
    const std::string* inside = texts.first_inside(out_);
    if (inside == nullptr) return {};
    return invalid(files::shown(*inside) + " is text to pack and lies in " + files::shown(out_) +
                   ", where the dataset goes")
        .remedy("name a folder for the dataset that holds none of the text");
  }

  // How many bytes of text there were.
  static Result<std::uint64_t> pack_all(const tokenizer::Tokenizer& tokenizer, dataset::Writer& writer,
                                        Texts& texts) {
    Packing packing(tokenizer, writer, texts);
    auto packed = texts.each([&](std::string_view text) { return packing.add(text); });
    if (!packed) return std::move(packed).error();
    return packing.bytes();
  }

  Result<> tell_packed(std::uint64_t text_bytes, std::size_t skipped, double seconds) const {
    const auto dataset = dataset::Dataset::open(out_);
    if (!dataset) return dataset.error();
    const double rate = static_cast<double>(text_bytes) / std::max(seconds, 1e-3);
    if (json_) {
      json told = described(*dataset);
      told.update({{"text_bytes", text_bytes}, {"files_skipped", skipped}, {"seconds", seconds}});
      std::printf("%s\n", told.dump().c_str());
      return {};
    }
    std::printf(
        "packed %llu document%s, %s of text, into %llu tokens in %s: %s bytes a token, %s/s\n",
        static_cast<unsigned long long>(dataset->documents()), dataset->documents() == 1 ? "" : "s",
        bytes_text(text_bytes).c_str(), static_cast<unsigned long long>(dataset->tokens()), out_.c_str(),
        short_number(static_cast<double>(text_bytes) / static_cast<double>(dataset->tokens())).c_str(),
        bytes_text(static_cast<std::uint64_t>(rate)).c_str());
    return {};
  }

  // ---- tokenizer

  Result<> learn() const {
    std::error_code unknown;
    if (!replace_ && std::filesystem::exists(out_, unknown))
      return invalid(files::shown(out_) + " exists already")
          .remedy("--replace writes a new one in its place");
    if (std::filesystem::exists(out_, unknown) && !is_tokenizer(out_))
      return invalid(files::shown(out_) + " is no tokenizer, and only one is replaced by another")
          .remedy("name another file, or remove it first");
    auto texts = Texts::find(paths_);
    if (!texts) return std::move(texts).error();
    const std::int64_t wanted = vocabulary_ == 0 ? vocabulary_default : vocabulary_;
    auto tokenizer = learn_from(*texts, wanted);
    if (!tokenizer) return std::move(tokenizer).error();
    texts->tell_skipped();
    if (auto put = put_file(out_, tokenizer->json()); !put) return put;
    tell_learned(*tokenizer, texts->bytes(), wanted);
    return {};
  }

  static Result<tokenizer::Tokenizer> learn_from(Texts& texts, std::int64_t wanted) {
    tokenizer::Trainer trainer;
    if (auto read = count_words(texts, trainer); !read) return std::move(read).error();
    ProgressBar learning("learning");
    return trainer.train(wanted, [&](std::int64_t done, std::int64_t all) {
      learning.show_count(static_cast<std::uint64_t>(done), static_cast<std::uint64_t>(all));
      return !interrupted;
    });
  }

  static Result<> count_words(Texts& texts, tokenizer::Trainer& trainer) {
    const auto cutter = tokenizer::Tokenizer::bytes();
    std::uint64_t bytes = 0;
    ProgressBar bar("reading");
    return texts.each([&](std::string_view text) {
      return in_pieces(cutter, text, [&](std::string_view piece) -> Result<> {
        trainer.add(piece);
        bytes += piece.size();
        bar.show_bytes(bytes, texts.bytes());
        return {};
      });
    });
  }

  void tell_learned(const tokenizer::Tokenizer& tokenizer, std::uint64_t bytes, std::int64_t wanted) const {
    if (json_) {
      const json told{{"file", out_}, {"vocabulary", tokenizer.vocabulary()}, {"text_bytes", bytes}};
      std::printf("%s\n", told.dump(-1, ' ', false, json::error_handler_t::replace).c_str());
      return;
    }
    std::printf("learned %lld tokens from %s of text: %s\n", static_cast<long long>(tokenizer.vocabulary()),
                bytes_text(bytes).c_str(), out_.c_str());
    if (tokenizer.vocabulary() < wanted)
      std::fprintf(stderr, "tutti: nothing else occurs twice; more text gives a larger vocabulary\n");
  }

  // ---- show

  Result<> show() const {
    const auto dataset = dataset::Dataset::open(paths_.front());
    if (!dataset) return dataset.error();
    if (verify_) {
      if (auto verified = verify(*dataset); !verified) return verified;
    }
    json told = described(*dataset);
    if (verify_) told["verified"] = true;
    if (json_) {
      std::printf("%s\n", told.dump().c_str());
    } else {
      print_text(table(told));
    }
    return {};
  }

  static Result<> verify(const dataset::Dataset& dataset) {
    ProgressBar bar("verifying");
    return dataset.verify([&](std::uint64_t done, std::uint64_t all) {
      bar.show_bytes(done, all);
      return !interrupted;
    });
  }

  static json described(const dataset::Dataset& dataset) {
    return {{"tokens", dataset.tokens()},
            {"token_type", dataset::name_of(dataset.type())},
            {"documents", dataset.documents()},
            {"vocabulary", dataset.vocabulary()},
            {"shards", dataset.shards()},
            {"bytes", dataset.tokens() * dataset::bytes_of(dataset.type())},
            {"end_of_text", dataset.end_of_text()},
            {"fingerprint", dataset.fingerprint().hex()}};
  }

  static std::string table(const json& told) {
    const auto number = [&](const char* key) { return std::to_string(told[key].get<std::uint64_t>()); };
    TextTable table({"TOKENS", "TYPE", "SIZE", "SHARDS", "DOCUMENTS", "VOCABULARY", "FINGERPRINT"});
    table.add({number("tokens"), told["token_type"].get<std::string>(),
               bytes_text(told["bytes"].get<std::uint64_t>()), number("shards"), number("documents"),
               number("vocabulary"), told["fingerprint"].get<std::string>()});
    return table.text() + (told.contains("verified") ? "every block is as it was written\n" : "");
  }

  std::string what_;
  std::vector<std::string> paths_;
  std::string tokenizer_;
  std::string out_;
  std::int64_t vocabulary_ = 0;
  bool replace_ = false;
  bool verify_ = false;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_data() { return std::make_unique<Data>(); }

}  // namespace tutti::cli
