// From what a client asks to requests of the engine: templates are followed, texts become tokens, forms
// become guides. It may take a while, so that threads of its own do it. Any thread, several at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/time.hpp"
#include "serve/api/ask.hpp"
#include "serve/batch/request.hpp"
#include "serve/constrain/constrain.hpp"
#include "serve/load/load.hpp"
#include "serve/server/guide_shelf.hpp"

namespace tutti::serve {

struct Prepared {
  // What is one prompt's own.
  struct Prompt {
    std::vector<Token> tokens;
    std::int32_t tokens_max = 1;  // of each answer
    std::string begin;            // what the answers begin with: the prompt, where it is echoed
  };

  api::Ask ask;                 // without what has become requests
  Request request;              // what all prompts have in common: it may be much, and wait for its form
  std::vector<Prompt> prompts;  // none where the model that is named is not here
  bool wants_form = false;      // its form has still to be made
  // When it was asked for the first time, as its answer and the template of a conversation have it.
  std::int64_t created_seconds = 0;
  // A prompt does not fit into the context, and of the rest nothing is there.
  std::optional<Error> beyond_context;

  // The request of a prompt.
  Request request_of(std::size_t nth) const;
};

class Preparation {
 public:
  // `loaded` is without its model by then, and outlives this.
  Preparation(const Loaded& loaded, const Limits& limits);

  struct Facts {
    std::string key;         // who asks
    std::uint64_t seed = 0;  // for a request without one
    Instant now;
    std::stop_token abandoned = {};  // nobody waits for it any more
  };
  // All but a form that was not asked for lately. What is wrong is invalid; a failure is one of having no
  // room just now, here and below.
  Result<Prepared> prepare(api::Kind kind, std::string_view body, const Facts& facts);
  // The form, which may take some hundred times as long; it stops when it is abandoned.
  Result<> add_form(Prepared& prepared, const std::stop_token& abandoned);

 private:
  Result<Prepared> read(api::Kind kind, std::string_view body, const Facts& facts);
  bool knows(const std::string& model) const;
  // A text that cannot fit whatever its tokens are is refused before it is cut into them.
  Result<> check_length(const api::Prompt& prompt) const;
  std::vector<Token> tokens_of(api::Kind kind, const api::Prompt& prompt,
                               const std::stop_token& abandoned) const;
  std::string text_of(const api::Prompt& prompt) const;
  // As the text of a prompt.
  Result<std::string> conversation(const api::Ask& ask, std::int64_t created_seconds,
                                   const std::stop_token& abandoned) const;
  Result<> check_vectors(const api::Ask& ask) const;
  std::shared_ptr<const TokenTable> table();
  Result<std::shared_ptr<Guide>> guide(const api::Form& form, const std::stop_token& abandoned);
  void add_stops(const api::Ask& ask, Request& request) const;

  const Loaded& loaded_;
  const Limits limits_;
  std::size_t text_bytes_max_ = 0;

  GuideShelf guides_;
  std::mutex mutex_;                         // of what follows
  std::shared_ptr<const TokenTable> table_;  // made when the first form is asked for
};

}  // namespace tutti::serve
