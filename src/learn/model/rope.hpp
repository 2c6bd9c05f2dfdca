// Rotary positions: how fast each pair of a head's numbers turns. What a config.json asks for is computed as
// Hugging Face computes it, or refused by name; nothing of it is passed over. Values, any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.hpp"

namespace tutti::json {
class Object;
}

namespace tutti::model {

struct Rope {
  enum class Kind {
    plain,
    linear,  // positions stretched by a factor
    llama3,  // only what turns slowly is stretched
    yarn,    // the same by another formula, and what was turned becomes larger
  };
  Kind kind = Kind::plain;
  double theta = 10000;
  double factor = 1;
  double low_frequency_factor = 1;    // llama3: below it all is stretched
  double high_frequency_factor = 4;   // llama3: above it nothing is
  std::int64_t original_context = 0;  // llama3, yarn: that of the model before it was stretched
  double beta_fast = 32;              // yarn: what turns more often within that context stays as it is
  double beta_slow = 1;               // yarn: what turns less often is stretched by all of the factor
  bool truncates = true;              // yarn: both are moved to the next pair outside them
  double attention_factor = 1;        // yarn: queries and keys are multiplied by it as they are turned

  friend bool operator==(const Rope&, const Rope&) = default;
};

// From the keys rope_theta, rope_scaling and rope_parameters of a configuration. Any other key with rope or
// rotary in its name is one that is not known.
Result<Rope> parse_rope(const json::Object& config);
// Into the same keys.
void write_rope(const Rope& rope, json::Object& config);

// Between which of a head's pairs the stretching of yarn begins and is complete; in this order, unless hardly
// anything turns within the original context.
struct Ramp {
  double begin = 0;
  double end = 0;
};
Ramp ramp_of(const Rope& rope, std::int64_t head_size);

// Of each pair of a head's numbers, in radians a position.
std::vector<double> frequencies(const Rope& rope, std::int64_t head_size);

}  // namespace tutti::model
