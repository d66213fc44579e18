#include "lib/report/chart.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/report/html.h"

namespace fusionllm::report {
namespace {

constexpr double kMinLeftMargin = 56, kRight = 16, kTop = 12, kBottom = 44;
constexpr double kCharacterWidth = 8, kBesideLabels = 30;  // of the widest fonts that browsers take; the title, its descenders and two gaps

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  void Add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return low > high; }
};

bool IsFinite(const ChartPoint& point) { return std::isfinite(point.x) && std::isfinite(point.y); }

std::vector<ChartPoint> Thinned(const std::vector<ChartPoint>& points) {
  if (points.size() <= kMaxChartPoints) return points;
  std::vector<ChartPoint> out;
  const size_t group = (points.size() + kMaxChartPoints - 1) / kMaxChartPoints;
  for (size_t begin = 0; begin < points.size(); begin += group) {
    const size_t end = std::min(begin + group, points.size());
    ChartPoint mean = {points[end - 1].x, 0};
    for (size_t i = begin; i < end; ++i) mean.y += points[i].y / static_cast<double>(end - begin);
    out.push_back(mean);
  }
  return out;
}

class Chart {
 public:
  Chart(const ChartOptions& options, const std::vector<ChartSeries>& series) : options_(options), series_(series) {
    for (ChartSeries& one : series_) one.points = Thinned(one.points);
  }

  std::string Draw() {
    Range x, y;
    for (const ChartSeries& series : series_) {
      for (const auto* points : {&series.points, &series.markers}) {
        for (const ChartPoint& point : *points) {
          if (!IsFinite(point)) continue;
          x.Add(point.x);
          y.Add(point.y);
        }
      }
    }
    if (x.empty()) return "";
    x_ticks_ = Ticks(x, std::max(3, static_cast<int>(options_.width / 100)));
    y_ticks_ = Ticks(y, std::max(3, static_cast<int>(options_.height / 52)));
    // Lines end where the data ends, not at the next tick.
    x_ = x.low < x.high ? x : Range{x_ticks_.front(), x_ticks_.back()};
    y_ = {y_ticks_.front(), y_ticks_.back()};
    for (const double tick : y_ticks_) {
      left_ = std::max(left_, kCharacterWidth * static_cast<double>(TickLabel(tick, y_ticks_[1] - y_ticks_[0]).size()) + kBesideLabels);
    }
    std::string out = absl::StrCat("<figure class=\"chart\" id=\"", Escape(options_.id), "\">\n", Legend(), "<svg viewBox=\"0 0 ",
                                   options_.width, " ", options_.height, "\" role=\"img\" aria-label=\"", Escape(options_.y_title),
                                   " over ", Escape(options_.x_title), "\">\n");
    absl::StrAppend(&out, Axes());
    for (const ChartSeries& series : series_) {
      absl::StrAppend(&out, Line(series), Markers(series, series.markers, options_.markers));
      if (series.ringed) absl::StrAppend(&out, Markers(series, series.points, ""));
    }
    absl::StrAppend(&out, "<line class=\"cross\" y1=\"", kTop, "\" y2=\"", options_.height - kBottom,
                    "\" visibility=\"hidden\"/>\n</svg>\n", Data(), "</figure>\n");
    return out;
  }

 private:
  static std::vector<double> Ticks(Range range, int most) {
    // One value, or values that differ by rounding alone, still need an axis.
    const double size = std::max(std::abs(range.low), std::abs(range.high));
    if (range.high - range.low <= size * 1e-9) {
      range.low -= size > 0 ? size * 0.1 : 0.5;
      range.high += size > 0 ? size * 0.1 : 0.5;
    }
    return NiceTicks(range.low, range.high, most);
  }

  double X(double value) const { return left_ + (value - x_.low) / (x_.high - x_.low) * (options_.width - left_ - kRight); }
  double Y(double value) const {
    return options_.height - kBottom - (value - y_.low) / (y_.high - y_.low) * (options_.height - kTop - kBottom);
  }

  std::string Legend() const {
    std::string out = "<figcaption>";
    for (const ChartSeries& series : series_) {
      const std::string look = series.ringed  ? absl::StrCat("ring st", series.colour % 8)
                               : series.faint ? absl::StrCat("bg", series.colour % 8, " faint")
                                              : absl::StrCat("bg", series.colour % 8);
      absl::StrAppend(&out, "<span class=\"key\"><i class=\"", look, "\"></i>", Escape(series.name), "</span>");
    }
    const bool marked = std::any_of(series_.begin(), series_.end(), [](const ChartSeries& series) { return !series.markers.empty(); });
    if (marked && !options_.markers.empty())
      absl::StrAppend(&out, "<span class=\"key\"><i class=\"ring\"></i>", Escape(options_.markers), "</span>");
    return out + "</figcaption>\n";
  }

  std::string Axes() const {
    std::string out = "<g class=\"axis\">";
    for (const double tick : y_ticks_) {
      const std::string y = Coordinate(Y(tick));
      absl::StrAppend(&out, "<line x1=\"", left_, "\" x2=\"", options_.width - kRight, "\" y1=\"", y, "\" y2=\"", y, "\"/><text x=\"",
                      left_ - 8, "\" y=\"", y, "\" dy=\"4\" text-anchor=\"end\">", TickLabel(tick, y_ticks_[1] - y_ticks_[0]), "</text>");
    }
    for (const double tick : x_ticks_) {
      if (tick < x_.low || tick > x_.high) continue;
      absl::StrAppend(&out, "<text x=\"", Coordinate(X(tick)), "\" y=\"", options_.height - kBottom + 18, "\" text-anchor=\"middle\">",
                      TickLabel(tick, x_ticks_[1] - x_ticks_[0]), "</text>");
    }
    absl::StrAppend(&out, "<text class=\"title\" x=\"", (left_ + options_.width - kRight) / 2, "\" y=\"", options_.height - 6,
                    "\" text-anchor=\"middle\">", Escape(options_.x_title), "</text><text class=\"title\" transform=\"translate(13 ",
                    (kTop + options_.height - kBottom) / 2, ") rotate(-90)\" text-anchor=\"middle\">", Escape(options_.y_title),
                    "</text></g>\n");
    return out;
  }

  std::string Line(const ChartSeries& series) const {
    std::string path;
    bool pen_down = false;
    for (const ChartPoint& point : series.points) {
      if (!IsFinite(point)) {
        pen_down = false;
        continue;
      }
      absl::StrAppend(&path, pen_down ? "L" : "M", Coordinate(X(point.x)), " ", Coordinate(Y(point.y)));
      pen_down = true;
    }
    return path.empty() ? ""
                        : absl::StrCat("<path class=\"line st", series.colour % 8, series.faint ? " faint" : "", "\" d=\"", path, "\"/>\n");
  }

  std::string Markers(const ChartSeries& series, const std::vector<ChartPoint>& points, absl::string_view what) const {
    std::string out;
    for (const ChartPoint& point : points) {
      if (!IsFinite(point)) continue;
      absl::StrAppend(&out, "<circle class=\"marker st", series.colour % 8, "\" cx=\"", Coordinate(X(point.x)), "\" cy=\"",
                      Coordinate(Y(point.y)), "\" r=\"4\"><title>", Escape(series.name), what.empty() ? "" : ", ", Escape(what), ": ",
                      absl::StrFormat("%.4g", point.y), "</title></circle>\n");
    }
    return out;
  }

  // What the crosshair reads: the frame in the units of the drawing, and the points of each series.
  std::string Data() const {
    std::string out = absl::StrCat("<script type=\"application/json\">{\"left\":", left_, ",\"right\":", options_.width - kRight,
                                   ",\"width\":", options_.width, ",\"low\":", absl::StrFormat("%.9g", x_.low),
                                   ",\"high\":", absl::StrFormat("%.9g", x_.high), ",\"series\":[");
    for (size_t i = 0; i < series_.size(); ++i) {
      absl::StrAppend(&out, i == 0 ? "" : ",", "[");
      bool first = true;
      for (const ChartPoint& point : series_[i].points) {
        if (!IsFinite(point)) continue;
        absl::StrAppend(&out, first ? "" : ",", "[", absl::StrFormat("%.6g,%.5g", point.x, point.y), "]");
        first = false;
      }
      out += "]";
    }
    return out + "]}</script>\n";
  }

  const ChartOptions& options_;
  std::vector<ChartSeries> series_;
  std::vector<double> x_ticks_, y_ticks_;
  Range x_, y_;
  double left_ = kMinLeftMargin;  // of the plane: labels and the title stand before it
};

}  // namespace

std::string DrawChart(const ChartOptions& options, const std::vector<ChartSeries>& series) { return Chart(options, series).Draw(); }

}  // namespace fusionllm::report
