// Walks through the tree of a template and writes what it says. Bounded whatever the template is. Pure
// function, any thread.
#pragma once

#include <stop_token>
#include <string>

#include "base/result.hpp"
#include "serve/chat/syntax.hpp"
#include "serve/chat/work.hpp"

namespace tutti::serve::chat {

Result<std::string> render(const Block& block, Variables variables, const Moment& now,
                           std::stop_token abandoned = {});

}  // namespace tutti::serve::chat
