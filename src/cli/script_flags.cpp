#include "cli/script_flags.hpp"

namespace tutti::cli {
namespace {

constexpr Duration delay_default = 2ms;
constexpr Duration delay_limit = 60s;

}  // namespace

void ScriptFlags::declare(config::Flags& flags) {
  flags.add("max-batch", max_batch_,
            "TorchScript: rows of requests that are computed together, if the first dimension counts rows "
            "(default: 1, nothing is)",
            {.min = 1, .max = serve::rows_max_limit});
  flags.add(
      "max-delay", "DURATION",
      [this](std::string_view text) -> Result<> {
        const auto read = parse_duration(text);
        if (!read) return read.error();
        if (*read > delay_limit) return invalid("must be at most " + format_duration(delay_limit));
        max_delay_ = *read;
        return {};
      },
      "TorchScript: that the first of a batch waits for others (default: 2ms)");
  flags.add("instances", instances_, "TorchScript: copies of the model that compute at once (default: 1)",
            {.min = 1, .max = serve::instances_max});
}

std::string ScriptFlags::given() const {
  if (max_batch_ > 0) return "--max-batch";
  if (max_delay_ != not_given) return "--max-delay";
  return instances_ > 0 ? "--instances" : "";
}

serve::GatherSettings ScriptFlags::gather() const {
  return {.rows_max = max_batch_ > 0 ? max_batch_ : 1,
          .delay_max = max_delay_ == not_given ? delay_default : max_delay_};
}

}  // namespace tutti::cli
