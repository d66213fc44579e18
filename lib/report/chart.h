// A line chart as SVG text with a legend; a script of the page (page.h) adds a crosshair that reads the values.
//
// Colours are the classes c0, c1, ... of the page, which follow its light or dark scheme. Pure.
#pragma once

#include <string>
#include <vector>

namespace fusionllm::report {

struct ChartPoint {
  double x = 0;
  double y = 0;  // NaN or infinite: a gap in the line
};

struct ChartSeries {
  std::string name;
  int colour = 0;
  std::vector<ChartPoint> points;   // ascending x; drawn as a line
  std::vector<ChartPoint> markers;  // drawn as rings
};

struct ChartOptions {
  std::string id;  // of the element; a plain word
  std::string x_title, y_title;
};

// At most this many points of a series are drawn: each is then the mean of those it stands for.
inline constexpr size_t kMaxChartPoints = 1500;

// Empty text when no series has a finite point.
std::string DrawChart(const ChartOptions& options, const std::vector<ChartSeries>& series);

}  // namespace fusionllm::report
