#include "lib/report/timeline.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/report/html.h"

namespace fusionllm::report {
namespace {

constexpr double kWidth = 1100, kLeft = 128, kTimelineRight = 30, kTimelineTop = 6, kRow = 26, kGap = 8, kHeading = 24, kAxis = 30;
constexpr size_t kMaxBoxes = 20'000;

struct Look {
  const char* css;
  const char* word;
};
constexpr Look kLooks[] = {{"fw", "forward"}, {"bw", "backward"}, {"up", "update"}, {"wt", "wait"}, {"ev", "evaluate"}};

const Look& LookOf(const Span& span) { return kLooks[static_cast<size_t>(span.kind)]; }

double SecondsOf(const Run& run, int64_t step) {
  const StepPoint* const point = FindStep(run, step);
  return point == nullptr ? std::numeric_limits<double>::quiet_NaN() : point->seconds;
}

// Of the steps that most devices have traced the one that took about as long as the median step; of equals the newest. So neither a step
// after a restore is shown nor one that something else disturbed, where there is another.
int64_t PickStep(const Run& run) {
  std::map<int64_t, std::set<std::string>> devices;
  size_t most = 0;
  for (const Span& span : run.spans) {
    devices[span.step].insert(span.device);
    most = std::max(most, devices[span.step].size());
  }
  const double median = MedianStepSeconds(run);
  int64_t best = 0;
  double least = std::numeric_limits<double>::infinity();
  for (const auto& [step, names] : devices) {
    if (names.size() < most) continue;
    double distance = std::abs(SecondsOf(run, step) - median);
    if (std::isnan(distance)) distance = std::numeric_limits<double>::infinity();
    if (distance > least) continue;
    best = step;
    least = distance;
  }
  return best;
}

struct Row {
  std::string device;
  std::string heading;  // above it; mostly empty
  double top = 0;
};

// From top to bottom: the plan's pipelines, by stage, then devices that the plan does not name any more.
std::vector<Row> Rows(const Run& run, const std::vector<Span>& spans) {
  std::vector<Row> rows;
  double top = kTimelineTop;
  std::string heading;  // of the next row
  const auto add = [&](const std::string& device) {
    const bool traced = std::any_of(spans.begin(), spans.end(), [&](const Span& span) { return span.device == device; });
    if (!traced || std::any_of(rows.begin(), rows.end(), [&](const Row& row) { return row.device == device; })) return;
    if (!heading.empty()) top += kHeading;
    rows.push_back({device, std::exchange(heading, ""), top});
    top += kRow + kGap;
  };
  const bool several = run.plan && run.plan->replicas > 1;
  for (int replica = 0; run.plan && replica < PipelinesOf(*run.plan); ++replica) {
    if (several) heading = absl::StrCat("Replica ", replica);
    for (const plan::Stage& stage : run.plan->stages) add(DeviceOf(stage, replica));
  }
  if (several) heading = "Not in the plan any more";
  for (const Span& span : spans) add(span.device);
  return rows;
}

}  // namespace

std::string DrawTimeline(const Run& run) {
  const int64_t step = PickStep(run);
  std::vector<Span> spans;
  for (const Span& span : run.spans) {
    if (span.step == step && span.end_ns >= span.begin_ns && spans.size() < kMaxBoxes) spans.push_back(span);
  }
  if (spans.empty()) return "";
  const std::vector<Row> rows = Rows(run, spans);
  int64_t begin = spans[0].begin_ns, end = spans[0].end_ns;
  for (const Span& span : spans) {
    begin = std::min(begin, span.begin_ns);
    end = std::max(end, span.end_ns);
  }
  const double seconds = std::max(static_cast<double>(end - begin) * 1e-9, 1e-9);
  const double bottom = rows.back().top + kRow + kGap;
  const auto x = [&](double second) { return kLeft + second / seconds * (kWidth - kLeft - kTimelineRight); };

  const double took = SecondsOf(run, step), median = MedianStepSeconds(run);
  std::string out = absl::StrCat("<figure class=\"timeline\"><figcaption>Step ", step);
  if (std::isfinite(took)) absl::StrAppend(&out, " took ", Seconds(took));
  if (std::isfinite(median))
    absl::StrAppend(&out, std::isfinite(took) ? ", the median step " : ": the median step takes ", Seconds(median));
  out += ".<br>";
  for (const Look& look : kLooks) {
    const bool used = std::any_of(spans.begin(), spans.end(), [&](const Span& span) { return &LookOf(span) == &look; });
    if (used) absl::StrAppend(&out, " <span class=\"key\"><i class=\"", look.css, "\"></i>", look.word, "</span>");
  }
  absl::StrAppend(&out, "</figcaption>\n<svg viewBox=\"0 0 ", kWidth, " ", bottom + kAxis, "\" role=\"img\" aria-label=\"timeline of step ",
                  step, "\">\n<g class=\"axis\">");
  const std::vector<double> ticks = NiceTicks(0, seconds, 10);
  for (const double tick : ticks) {
    if (tick > seconds) continue;
    const std::string at = Coordinate(x(tick));
    absl::StrAppend(&out, "<line x1=\"", at, "\" x2=\"", at, "\" y1=\"", kTimelineTop, "\" y2=\"", bottom, "\"/><text x=\"", at, "\" y=\"",
                    bottom + 18, "\" text-anchor=\"middle\">", tick == 0 ? "0" : Seconds(tick), "</text>");
  }
  absl::StrAppend(&out, "</g>\n");
  for (const auto& [device, heading, top] : rows) {
    if (!heading.empty()) {
      absl::StrAppend(&out, "<text class=\"row\" x=\"0\" y=\"", top - kHeading / 2, "\" dy=\"4\" font-weight=\"bold\">", heading,
                      "</text>\n");
    }
    absl::StrAppend(&out, "<text class=\"row\" x=\"", kLeft - 10, "\" y=\"", top + kRow / 2, "\" dy=\"4\" text-anchor=\"end\">",
                    Escape(device), "</text>\n");
    for (const Span& span : spans) {
      if (span.device != device) continue;
      const double from = x(static_cast<double>(span.begin_ns - begin) * 1e-9);
      const double width = std::max(x(static_cast<double>(span.end_ns - begin) * 1e-9) - from, 0.4);
      const Look& look = LookOf(span);
      const bool numbered = span.micro_batch >= 0 && (span.kind == Span::Kind::kForward || span.kind == Span::Kind::kBackward);
      absl::StrAppend(&out, "<rect class=\"", look.css, "\" x=\"", Coordinate(from), "\" y=\"", top, "\" width=\"", Coordinate(width),
                      "\" height=\"", kRow, "\"><title>", look.word,
                      numbered ? absl::StrCat(" of micro-batch ", span.micro_batch) : std::string(), ", ",
                      Seconds(static_cast<double>(span.end_ns - span.begin_ns) * 1e-9), "</title></rect>");
      if (numbered && width >= 14) {
        absl::StrAppend(&out, "<text class=\"mb\" x=\"", Coordinate(from + width / 2), "\" y=\"", top + kRow / 2,
                        "\" dy=\"4\" text-anchor=\"middle\">", span.micro_batch, "</text>");
      }
    }
    out += "\n";
  }
  return out + "</svg></figure>\n";
}

}  // namespace fusionllm::report
