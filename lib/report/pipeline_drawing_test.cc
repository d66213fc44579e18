#include "lib/report/pipeline_drawing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "lib/report/testing/xml_check.h"

namespace fusionllm::report {
namespace {

using scheduler::Timeline;
using scheduler::TimelineSpan;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::XmlProblem;

// `passes` forwards and backwards of one stage, a message after each forward.
Timeline Passes(int passes) {
  Timeline timeline{.rows = {{.name = "stage 0: a<b>&\"c\""}, {.name = "a -> b: activations", .is_link = true}}, .step_s = 2.0 * passes};
  for (int m = 0; m < passes; ++m) {
    timeline.boxes.push_back({0, {TimelineSpan::Kind::kForward, 0, m, 2.0 * m, 2.0 * m + 1}});
    timeline.boxes.push_back({0, {TimelineSpan::Kind::kBackward, 0, m, 2.0 * m + 1, 2.0 * m + 2}});
    timeline.boxes.push_back({1, {TimelineSpan::Kind::kForwardMessage, 0, m, 2.0 * m + 1, 2.0 * m + 1.5, 2.0 * m + 1, 2.0 * m + 1.75}});
  }
  return timeline;
}

size_t Occurrences(const std::string& text, const std::string& what) {
  size_t count = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

TEST(PipelineDrawing, IsWellFormedWhateverTheNames) {
  const std::string svg = DrawPipeline(Passes(4), "x < y & \"z\"");
  EXPECT_EQ(XmlProblem(svg), "");
  EXPECT_THAT(svg, HasSubstr("stage 0: a&lt;b&gt;&amp;&quot;c&quot;"));
  EXPECT_EQ(Occurrences(svg, "<rect class=\"fw\""), 5) << "four passes and the legend";
  EXPECT_EQ(Occurrences(svg, "<rect class=\"am\""), 5);
  EXPECT_EQ(Occurrences(svg, "<line class=\"l\""), 4) << "latencies";
  EXPECT_THAT(svg, Not(HasSubstr("gradients of weights"))) << "the legend has only what is drawn";
  EXPECT_THAT(svg, HasSubstr(">3</text>"));
  EXPECT_THAT(svg, HasSubstr("the next step begins: 8 s"));
  EXPECT_EQ(XmlProblem(DrawPipeline({}, "")), "");
}

// A thousand boxes are still distinguished: none is thinner than a line, and the names stay beside the rows.
TEST(PipelineDrawing, AThousandBoxesAreReadable) {
  const std::string svg = DrawPipeline(Passes(350), "many");
  EXPECT_EQ(XmlProblem(svg), "");
  static const std::regex kBox("<rect class=\"[fb]w\" x=\"([0-9.]+)\" y=\"[0-9.]+\" width=\"([0-9.]+)\"");
  size_t boxes = 0;
  double right = 0;
  for (std::sregex_iterator it(svg.begin(), svg.end(), kBox), end; it != end; ++it) {
    if (++boxes <= 2) continue;  // the legend
    EXPECT_GE(std::stod((*it)[2]), 5);
    EXPECT_GE(std::stod((*it)[1]), right - 0.02);
    right = std::stod((*it)[1]) + std::stod((*it)[2]);
  }
  EXPECT_EQ(boxes, 702);
}

TEST(PipelineDrawing, WhatIsLeftOutIsSaid) {
  const std::string svg = DrawPipeline(Passes(8000), "too many");
  EXPECT_EQ(XmlProblem(svg), "");
  EXPECT_THAT(svg, HasSubstr("only the first 20000 boxes are drawn"));
}

TEST(XmlCheck, FindsWhatIsBroken) {
  EXPECT_EQ(XmlProblem("<a x=\"1\"><b/>t &amp; u</a>"), "");
  for (const char* text :
       {"<a>", "<a></b>", "<a x=1/>", "<a x=\"1\" x=\"2\"/>", "<a>&nbsp;</a>", "<a/><b/>", "", "<a b=\"<\"/>", "x<a/>"}) {
    EXPECT_NE(XmlProblem(text), "") << text;
  }
}

}  // namespace
}  // namespace fusionllm::report
