#include <array>

#include "serve/chat/work.hpp"

namespace tutti::serve::chat {
namespace {

constexpr std::array<std::string_view, 12> months{"January",   "February", "March",    "April",
                                                  "May",       "June",     "July",     "August",
                                                  "September", "October",  "November", "December"};
constexpr std::array<std::string_view, 7> days{"Sunday",   "Monday", "Tuesday", "Wednesday",
                                               "Thursday", "Friday", "Saturday"};
constexpr std::array<int, 12> days_before_month{0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
constexpr std::size_t formatted_bytes_max = 1000;

std::string padded(int number, std::size_t digits) {
  std::string text = std::to_string(number);
  return text.size() < digits ? std::string(digits - text.size(), '0') + text : text;
}

bool is_leap(int year) { return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0); }

std::size_t month_index(const Moment& moment) { return static_cast<std::size_t>(moment.month + 11) % 12; }

int day_of_year(const Moment& moment) {
  return days_before_month[month_index(moment)] + moment.day +
         (moment.month > 2 && is_leap(moment.year) ? 1 : 0);
}

// Sakamoto's rule: each month begins so many days of the week after the year does.
std::size_t weekday(const Moment& moment) {
  static constexpr std::array<int, 12> shifts{0, 3, 2, 5, 0, 3, 5, 1, 4, 6, 2, 4};
  const int year = moment.month < 3 ? moment.year - 1 : moment.year;
  const int day = year + year / 4 - year / 100 + year / 400 + shifts[month_index(moment)] + moment.day;
  return static_cast<std::size_t>(day % 7 + 7) % 7;
}

std::string field(const Moment& moment, char letter, bool plain) {
  const auto two = [&](int number) { return padded(number, plain ? 1 : 2); };
  const int hour12 = moment.hour % 12 == 0 ? 12 : moment.hour % 12;
  switch (letter) {
    case 'Y':
      return padded(moment.year, 4);
    case 'y':
      return two(moment.year % 100);
    case 'm':
      return two(moment.month);
    case 'd':
      return two(moment.day);
    case 'H':
      return two(moment.hour);
    case 'I':
      return two(hour12);
    case 'M':
      return two(moment.minute);
    case 'S':
      return two(moment.second);
    case 'p':
      return moment.hour < 12 ? "AM" : "PM";
    case 'j':
      return padded(day_of_year(moment), plain ? 1 : 3);
    case 'B':
      return std::string(months[month_index(moment)]);
    case 'b':
      return std::string(months[month_index(moment)].substr(0, 3));
    case 'A':
      return std::string(days[weekday(moment)]);
    case 'a':
      return std::string(days[weekday(moment)].substr(0, 3));
    case 'F':
      return padded(moment.year, 4) + "-" + padded(moment.month, 2) + "-" + padded(moment.day, 2);
    case 'T':
      return padded(moment.hour, 2) + ":" + padded(moment.minute, 2) + ":" + padded(moment.second, 2);
    case '%':
      return "%";
    default:
      return std::string("%") + letter;
  }
}

}  // namespace

std::string format_moment(const Moment& moment, std::string_view format) {
  std::string out;
  for (std::size_t at = 0; at < format.size() && out.size() < formatted_bytes_max; ++at) {
    if (format[at] != '%' || at + 1 == format.size()) {
      out += format[at];
      continue;
    }
    const bool plain = format[at + 1] == '-' && at + 2 < format.size();
    at += plain ? 2 : 1;
    out += field(moment, format[at], plain);
  }
  return out;
}

}  // namespace tutti::serve::chat
