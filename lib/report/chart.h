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
  std::vector<ChartPoint> points = {};   // ascending x; drawn as a line
  std::vector<ChartPoint> markers = {};  // drawn as rings
  bool faint = false;                    // the line is background to another one
  bool ringed = false;                   // each point has a ring as well, and so has the legend
};

struct ChartOptions {
  std::string id;  // of the element; a plain word
  std::string x_title, y_title;
  std::string markers = {};          // what rings of markers are, for the legend
  double width = 900, height = 320;  // of the drawing, which is scaled to its place
};

// At most this many points of a series are drawn: each is then the mean of those it stands for.
inline constexpr size_t kMaxChartPoints = 1500;

// Empty text when no series has a finite point.
std::string DrawChart(const ChartOptions& options, const std::vector<ChartSeries>& series);

}  // namespace fusionllm::report
