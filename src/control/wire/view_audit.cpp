#include "control/wire/convert.hpp"
#include "control/wire/json.hpp"
#include "control/wire/views.hpp"

namespace tutti::wire {

std::string audit_json(const AuditPage& page) {
  proto::AuditPage view;
  for (const std::string& line : page.lines) view.add_lines(line);
  if (page.next > 0) view.set_next(std::to_string(page.next));
  if (page.head.last > 0) view.set_head(std::to_string(page.head.last) + ":" + page.head.hash);
  return print(view);
}

}  // namespace tutti::wire
