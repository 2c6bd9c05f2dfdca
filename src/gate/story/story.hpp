// One stream of server-sent events, told by one engine or by several: when one of them dies in the middle,
// another one goes on with the tokens so far, and the client reads one stream. What engines of tutti say of
// the tokens stands in a comment of each event, `: tutti 17 204`, which is not for clients. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace tutti::gate {

// With this header a stream is asked for whose comments tell its tokens; with this member of its body a
// request goes on behind such tokens.
inline constexpr const char* resumable_header = "tutti-resumable";
inline constexpr std::string_view resume_member = "tutti_resume";

// An event that does not end is refused.
inline constexpr std::size_t event_bytes_max = std::size_t{4} << 20;
// Of an answer that another one can go on with.
inline constexpr std::size_t tokens_max = std::size_t{1} << 20;

class Story {
 public:
  // `with_comments`: its reader wants those, too. `may_go_on`: of a request that another one could go on
  // with.
  Story(bool may_go_on, bool with_comments) : may_go_on_(may_go_on), with_comments_(with_comments) {}

  // What of it goes to the client: whole events, none behind the last one. Refused is what is no stream of
  // events.
  Result<std::string> take(std::string_view bytes);

  bool has_begun() const { return has_begun_; }  // something went to the client
  // The last event has come.
  bool is_whole() const { return is_whole_; }
  // It has said that it cannot go on, and that another one might: the client has not been told.
  bool is_given_up() const { return !reason_.empty(); }
  const std::string& reason() const { return reason_; }  // the event that says so

  // Whether another one can tell the rest: each event so far that has any has told its tokens.
  bool can_go_on() const { return may_go_on_ && (!has_begun_ || is_known_); }
  // The value of the member with which he is asked; "" where he is asked for all of it.
  std::string rest() const;
  // He begins: what is left of the one before him is dropped.
  void begin_again();

  std::size_t tokens() const { return tokens_.size(); }
  // That went to the client: about as many as there are tokens, where nobody tells those.
  std::size_t events() const { return events_; }

 private:
  bool take_event(std::string_view event, std::string& out);
  bool read_comment(std::string_view numbers);
  void read_name(std::string_view data);

  const bool may_go_on_;
  const bool with_comments_;
  std::string pending_;  // an event that is not whole
  std::string held_;     // who speaks, until the first token
  std::string reason_;
  std::string id_;
  std::int64_t created_ = 0;
  std::vector<std::int32_t> tokens_;
  std::size_t events_ = 0;
  bool has_begun_ = false;
  bool is_known_ = true;
  bool is_finished_ = false;  // why it ends was told
  bool is_whole_ = false;
};

}  // namespace tutti::gate
