#include <chrono>
#include <thread>

#include "base/clock/clock.hpp"
#include "cli/login_ways.hpp"
#include "cli/orderly_end.hpp"
#include "cli/terminal.hpp"

namespace tutti::cli {
namespace {

constexpr auto looked_every = std::chrono::milliseconds(100);

Result<oidc::DeviceGrant> ask_for_code(const LoginPlace& place) {
  const auto answer =
      oidc::post_form(place.provider.device_url, oidc::device_form(place.client), place.reach);
  if (interrupted) return login_interrupted();
  if (!answer) return answer.error();
  return oidc::read_device_answer(answer->status, answer->body);
}

Result<> invite(const oidc::DeviceGrant& grant) {
  std::string text = "Log in with a browser on any machine, at\n\n  " + grant.url +
                     "\n\nand type in the code\n\n  " + grant.user_code + "\n\n";
  if (!grant.whole_url.empty()) text += "or follow  " + grant.whole_url + "\n\n";
  print_text(text);
  return flush_text();
}

// False when it was interrupted.
bool wait_until(Instant time) {
  while (!interrupted && now_steady() < time) std::this_thread::sleep_for(looked_every);
  return !interrupted;
}

}  // namespace

Result<IssuedToken> log_in_with_code(const LoginPlace& place) {
  const auto grant = ask_for_code(place);
  if (!grant) return grant.error();
  if (auto told = invite(*grant); !told) return std::move(told).error();
  const oidc::Form form = oidc::device_token_form(place.client, *grant);
  for (oidc::DeviceWait wait(*grant, now_steady()); wait_until(wait.next_at());) {
    if (wait.is_over(now_steady())) return oidc::device_code_expired();
    const auto answer = oidc::post_form(place.provider.token_url, form, place.reach);
    if (!answer) {
      wait.unheard(now_steady());
      continue;
    }
    const auto read = oidc::read_token_answer(answer->status, answer->body);
    if (!read) return read.error();
    auto token = wait.heard(*read, now_steady());
    if (!token) return std::move(token).error();
    if (*token) return IssuedToken{**token, ""};
  }
  return login_interrupted();
}

}  // namespace tutti::cli
