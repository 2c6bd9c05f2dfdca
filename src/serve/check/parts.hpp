// The parts of check_gpu().
#pragma once

#include "serve/check/check.hpp"
#include "serve/cuda/model.hpp"

namespace tutti::serve {

Result<> check_logits(const Print& print);
Result<> check_answers(const Print& print);
Result<> check_choices(const Print& print);

}  // namespace tutti::serve
