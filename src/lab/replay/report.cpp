// What a replay came to, for programs and for people.
#include <algorithm>
#include <cstdio>

#include <nlohmann/json.hpp>

#include "lab/replay/replay.hpp"

namespace tutti::replay {
namespace {

constexpr std::size_t gantt_jobs_max = 40;
constexpr double width = 1000;
constexpr double height = 160;
constexpr double row_height = 12;

std::string escaped(const std::string& text) {
  std::string out;
  for (const char letter : text) {
    switch (letter) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += letter;
    }
  }
  return out;
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

// A line that steps from point to point, over the whole width.
std::string steps(const Replayed& replayed, double end, double highest, double (*value)(const Point&)) {
  std::string path;
  double before = 0;
  for (const Point& point : replayed.points) {
    const double x = end > 0 ? in_seconds(point.at) / end * width : 0;
    const double y = height - (highest > 0 ? value(point) / highest * height : 0);
    if (path.empty()) {
      path = "M" + number(x) + " " + number(y);
    } else {
      path += "L" + number(x) + " " + number(before) + "L" + number(x) + " " + number(y);
    }
    before = y;
  }
  return path;
}

std::string plot(const std::string& title, const std::string& path, const std::string& colour, double highest,
                 double end) {
  return "<h2>" + title + "</h2><svg viewBox=\"-60 -10 1070 200\"><path d=\"" + path +
         "\" fill=\"none\" stroke=\"" + colour +
         "\"/><line x1=\"0\" y1=\"160\" x2=\"1000\" y2=\"160\" stroke=\"#888\"/><text x=\"-8\" y=\"6\" "
         "text-anchor=\"end\">" +
         number(highest) +
         "</text><text x=\"-8\" y=\"163\" text-anchor=\"end\">0</text>"
         "<text x=\"1000\" y=\"178\" text-anchor=\"end\">" +
         number(end / 3600) + " h</text></svg>\n";
}

std::string gantt(const Replayed& replayed, double end) {
  std::vector<const ReplayedJob*> largest;
  for (const ReplayedJob& job : replayed.jobs) largest.push_back(&job);
  std::stable_sort(largest.begin(), largest.end(), [](const ReplayedJob* a, const ReplayedJob* b) {
    return in_seconds(a->duration) * a->gpus > in_seconds(b->duration) * b->gpus;
  });
  if (largest.size() > gantt_jobs_max) largest.resize(gantt_jobs_max);
  std::stable_sort(largest.begin(), largest.end(),
                   [](const ReplayedJob* a, const ReplayedJob* b) { return a->submit < b->submit; });
  const double all = row_height * static_cast<double>(largest.size());
  std::string svg = "<h2>The largest jobs: waiting (grey) and running</h2><svg viewBox=\"-160 -10 1170 " +
                    number(all + 40) + "\">";
  for (std::size_t row = 0; row < largest.size(); ++row) {
    const ReplayedJob& job = *largest[row];
    const double y = row_height * static_cast<double>(row);
    const auto bar = [&](Duration from, Duration to, const char* colour) {
      const double x = in_seconds(from) / end * width;
      const double wide = std::max(0.5, in_seconds(to - from) / end * width);
      svg += "<rect x=\"" + number(x) + "\" y=\"" + number(y + 2) + "\" width=\"" + number(wide) +
             "\" height=\"8\" fill=\"" + colour + "\"/>";
    };
    svg += "<text x=\"-8\" y=\"" + number(y + 10) + "\" text-anchor=\"end\">" +
           escaped(job.name.substr(0, 14)) + ", " + std::to_string(job.gpus) + " GPUs</text>";
    bar(job.submit, job.end, "#ddd");
    for (const Stretch& stretch : job.ran) bar(stretch.from, stretch.to, "#2a7");
  }
  return svg + "</svg>\n";
}

}  // namespace

std::string to_json(const Replayed& replayed) {
  const nlohmann::json out{{"policy", replayed.policy},
                           {"gpus", replayed.gpus},
                           {"jobs", replayed.jobs.size()},
                           {"jct_mean_s", replayed.jct_mean_s()},
                           {"jct_median_s", replayed.jct_median_s()},
                           {"jct_p99_s", replayed.jct_p99_s()},
                           {"makespan_s", replayed.makespan_s()},
                           {"queue_mean_s", replayed.queue_mean_s()},
                           {"utilisation", replayed.utilisation()},
                           {"preemptions", replayed.preemptions},
                           {"node_failures", replayed.node_failures},
                           {"lost_gpu_hours", replayed.lost_gpu_hours}};
  return out.dump(2) + "\n";
}

std::string to_html(const Replayed& replayed) {
  double end = 1;
  for (const ReplayedJob& job : replayed.jobs) end = std::max(end, in_seconds(job.end));
  double longest = 1;
  for (const Point& point : replayed.points) longest = std::max(longest, static_cast<double>(point.queued));
  const auto row = [](const std::string& what, const std::string& value) {
    return "<tr><td>" + what + "</td><td>" + value + "</td></tr>";
  };
  std::string page =
      "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>tutti "
      "sim</title><style>body{font:14px "
      "sans-serif;max-width:1100px;margin:2em auto;color:#222}svg{width:100%}text{font-size:9px;fill:#555}td{"
      "padding:2px 1em 2px 0}h2{font-size:15px;margin:1.5em 0 .3em}</style>\n<h1>" +
      std::to_string(replayed.jobs.size()) + " jobs on " + std::to_string(replayed.gpus) + " GPUs, policy " +
      escaped(replayed.policy) + "</h1>\n<table>";
  page += row("average job completion time", number(replayed.jct_mean_s()) + " s");
  page += row("median", number(replayed.jct_median_s()) + " s");
  page += row("99th percentile", number(replayed.jct_p99_s()) + " s");
  page += row("makespan", number(replayed.makespan_s()) + " s");
  page += row("average time in the queue", number(replayed.queue_mean_s()) + " s");
  page += row("utilisation", number(100 * replayed.utilisation()) + " %");
  page += row("preemptions", std::to_string(replayed.preemptions));
  page += row("lost GPU-hours", number(replayed.lost_gpu_hours));
  page += "</table>\n";
  page += plot("GPUs in use",
               steps(replayed, end, static_cast<double>(replayed.gpus),
                     [](const Point& point) { return point.gpus_busy; }),
               "#2a7", static_cast<double>(replayed.gpus), end);
  page += plot(
      "Gangs in the queue",
      steps(replayed, end, longest, [](const Point& point) { return static_cast<double>(point.queued); }),
      "#c60", longest, end);
  return page + gantt(replayed, end) + "</html>\n";
}

}  // namespace tutti::replay
