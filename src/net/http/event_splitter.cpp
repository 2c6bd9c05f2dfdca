#include "net/http/event_splitter.hpp"

#include <algorithm>
#include <utility>

#include "base/units.hpp"

namespace tutti::net {

Result<bool> EventSplitter::feed(std::string_view bytes, const Client::OnEvent& on_event) {
  std::size_t searched = pending_.size();
  pending_ += bytes;
  std::size_t begin = 0;
  for (;;) {
    const auto end = pending_.find('\n', searched);
    if (end == std::string::npos) break;
    std::string_view line = std::string_view(pending_).substr(begin, end - begin);
    if (line.ends_with('\r')) line.remove_suffix(1);
    begin = searched = end + 1;
    if (!line.empty()) {
      take(line);
      continue;
    }
    const std::string event = std::exchange(event_, {});
    const std::string data = std::exchange(data_, {});
    if ((!event.empty() || !data.empty()) && !on_event(event, data)) return false;
  }
  pending_.erase(0, begin);
  if (pending_.size() + data_.size() > event_bytes_max)
    return failed("an event is longer than " +
                  format_bytes(Bytes(static_cast<std::int64_t>(event_bytes_max))))
        .remedy("what answers there does not end its events; is it the server that is meant?");
  return true;
}

void EventSplitter::take(std::string_view line) {
  const std::size_t colon = std::min(line.find(':'), line.size());
  const std::string_view name = line.substr(0, colon);
  std::string_view value = line.substr(std::min(colon + 1, line.size()));
  if (value.starts_with(' ')) value.remove_prefix(1);
  if (name == "event") event_ = value;
  if (name == "data") data_ += value;
}

}  // namespace tutti::net
