// `tutti generate`: text from a model, in this process.
#include <algorithm>
#include <cstdio>
#include <future>
#include <nlohmann/json.hpp>

#include "base/text.hpp"
#include "cli/commands.hpp"
#include "cli/model_flags.hpp"
#include "cli/terminal.hpp"
#include "serve/engine/engine.hpp"

namespace tutti::cli {
namespace {

// What most people mean by a text that is not always the same and still makes sense.
constexpr double temperature_default = 0.8;
constexpr std::int64_t top_k_default = 40;

// What came of it, told by the engine's thread.
struct Written {
  std::string text;
  std::int64_t tokens = 0;
  std::string problem;
  std::promise<serve::Finish> finish;
};

class Generate final : public Command {
 public:
  void declare(config::Flags& flags) override {
    flags.add_word("MODEL", model_, "the folder of a run of `tutti train`, or a folder of Hugging Face");
    flags.add("prompt", prompt_, "what the text begins with");
    flags.add("tokens", tokens_, "how many to write at most (default: 64)", {.min = 1, .max = 1 << 20});
    flags.add("temperature", temperature_, "how freely: 0 always takes the likeliest (default: 0.8)");
    flags.add("top-k", top_k_, "choose among so many of the likeliest, 0: all (default: 40)",
              {.min = 0, .max = 1 << 24});
    flags.add("seed", seed_, "of the choice (default: 1)", {.min = 0});
    model_flags_.declare(flags);
    flags.add("json", json_, "print a JSON object: text, tokens, why it ended");
  }

  Result<int> run() override {
    if (!(temperature_ >= 0 && temperature_ <= serve::temperature_max))
      return invalid("--temperature is from 0 to 100").within("command line");
    auto chosen = model_flags_.choose_one();
    if (!chosen) return std::move(chosen).error();
    // One answer is all that is computed.
    chosen->load.step_rows_max = 1 + chosen->batch.drafts_max;
    chosen->batch.sequences_max = 1;
    auto loaded = serve::load(model_, chosen->load);
    if (!loaded) return std::move(loaded).error();
    model_flags_.tell(*loaded);
    auto request = make_request(*loaded);
    if (!request) return std::move(request).error();
    const std::int64_t prompt_tokens = static_cast<std::int64_t>(request->prompt.size());
    const std::string name = loaded->adapters.empty() ? loaded->source.name : loaded->adapters.front();
    const auto token_bytes = loaded->token_bytes();
    serve::Engine engine(std::move(loaded->model), chosen->batch, token_bytes);
    Written written;
    if (!json_) print_text(prompt_);
    auto submitted = engine.submit(std::move(*request), [&](serve::Piece&& piece) { take(piece, written); });
    if (!submitted) return std::move(submitted).error();
    const serve::Finish finish = written.finish.get_future().get();
    if (finish != serve::Finish::stop && finish != serve::Finish::length)
      return failed(written.problem).within(model_);
    if (json_) {
      const nlohmann::json told{{"model", name},
                                {"prompt", valid_utf8(prompt_)},
                                {"text", valid_utf8(written.text)},
                                {"prompt_tokens", prompt_tokens},
                                {"completion_tokens", written.tokens},
                                {"finish", serve::name_of(finish)}};
      std::printf("%s\n", told.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
    } else {
      std::printf("\n");
    }
    return exit_success;
  }

 private:
  Result<serve::Request> make_request(const serve::Loaded& loaded) const {
    const serve::Source& source = loaded.source;
    auto ids = source.tokenizer.encode(prompt_, {.special = true, .frame = true});
    if (ids.empty() && source.settings.begin) ids.push_back(*source.settings.begin);
    if (ids.empty() && source.settings.end) ids.push_back(*source.settings.end);
    const std::int64_t context = loaded.model->limits().context;
    const std::int64_t left = context - static_cast<std::int64_t>(ids.size());
    if (left < 1)
      return invalid("the prompt has " + std::to_string(ids.size()) + " tokens, the model's context " +
                     std::to_string(context))
          .within(model_)
          .remedy("shorten the prompt");
    if (left < tokens_ && !json_)
      print_note("the model's context has room for " + std::to_string(left) + " tokens after this prompt");
    serve::Request request{.prompt = std::vector<serve::Token>(ids.begin(), ids.end()),
                           .adapter = loaded.model->limits().adapters,
                           .tokens_max = static_cast<std::int32_t>(std::min(tokens_, left))};
    request.sampling.temperature = static_cast<float>(temperature_);
    if (request.sampling.temperature < serve::temperature_min) request.sampling.temperature = 0;
    request.sampling.top_k = static_cast<std::int32_t>(top_k_);
    request.sampling.seed = static_cast<std::uint64_t>(seed_);
    for (const std::uint32_t stop : source.settings.stops)
      request.stop_ids.push_back(static_cast<serve::Token>(stop));
    return request;
  }

  void take(const serve::Piece& piece, Written& written) const {
    written.tokens += static_cast<std::int64_t>(piece.tokens.size());
    if (json_) {
      written.text += piece.text;
    } else {
      print_text(piece.text);
      std::fflush(stdout);
    }
    written.problem += piece.problem;
    if (piece.finish) written.finish.set_value(*piece.finish);
  }

  std::string model_;
  std::string prompt_;
  std::int64_t tokens_ = 64;
  double temperature_ = temperature_default;
  std::int64_t top_k_ = top_k_default;
  std::int64_t seed_ = 1;
  ModelFlags model_flags_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_generate() { return std::make_unique<Generate>(); }

}  // namespace tutti::cli
