#include "lib/report/pipeline_drawing.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/report/html.h"

namespace fusionllm::report {
namespace {

using Kind = scheduler::TimelineSpan::Kind;
using scheduler::Timeline;

constexpr double kDrawingTop = 78, kStageRow = 24, kLinkRow = 16, kDrawingGap = 6, kDrawingAxis = 34, kDrawingRight = 20;
constexpr double kMinWidth = 900, kMaxWidth = 6000;  // of the rows, without names
constexpr double kWidthOfBox = 9;                    // that a drawing of many boxes aims at
constexpr double kNameCharWidth = 7;
constexpr size_t kMaxNameChars = 60;
constexpr double kRoomForNumber = 7;  // for each digit

struct Look {
  const char* css;
  const char* word;
};
constexpr Look kLooks[] = {{"fw", "forward"},     {"bw", "backward"},  {"wt", "gradients of weights"}, {"up", "update"},
                           {"am", "activations"}, {"gm", "gradients"}, {"tm", "tied gradients"},       {"no", "waits for the global norm"}};

constexpr char kStyle[] =
    "<style>text{font:12px "
    "system-ui,sans-serif;fill:#1f2430}.n{font-size:10px;fill:#fff;text-anchor:middle}.h{font-size:15px;font-weight:600}"
    ".r{text-anchor:end}.a{stroke:#d5d8df}.e{stroke:#1f2430;stroke-dasharray:4 3}.l{stroke:#8a90a0;stroke-width:1}.b{fill:#f4f5f8}"
    ".fw,.bw,.wt,.up,.am,.gm,.tm,.no{stroke:#fff;stroke-width:.5}.fw{fill:#2f6fb5}.bw{fill:#b5542f}.wt{fill:#8f6a1e}.up{fill:#55606e}.am{"
    "fill:#"
    "3f8f8a}.gm{fill:#8a4f9e}.tm{fill:#b03a6e}.no{fill:#c9cdd6}</style>";

const Look& LookOf(Kind kind) { return kLooks[static_cast<size_t>(kind)]; }

std::string ShortName(const std::string& name) {
  return name.size() <= kMaxNameChars ? name : absl::StrCat(name.substr(0, kMaxNameChars - 3), "...");
}

class Drawing {
 public:
  explicit Drawing(const Timeline& timeline) : timeline_(timeline), last_s_(std::max(timeline.step_s, 1e-9)) {
    std::vector<size_t> boxes(timeline.rows.size(), 0);
    for (const Timeline::Box& box : timeline.boxes) {
      ++boxes[box.row];
      last_s_ = std::max({last_s_, box.span.end_s, box.span.arrives_s});
    }
    size_t characters = 8, most = 0;
    double top = kDrawingTop;
    for (size_t r = 0; r < timeline.rows.size(); ++r) {
      characters = std::max(characters, ShortName(timeline.rows[r].name).size());
      most = std::max(most, boxes[r]);
      tops_.push_back(top);
      top += HeightOf(r) + kDrawingGap;
    }
    left_ = kNameCharWidth * static_cast<double>(characters) + 20;
    width_ = std::clamp(kWidthOfBox * static_cast<double>(most), kMinWidth, kMaxWidth);
    bottom_ = top;
  }

  std::string Document(const std::string& title) const {
    const std::string size =
        absl::StrCat("width=\"", Coordinate(left_ + width_ + kDrawingRight), "\" height=\"", Coordinate(bottom_ + kDrawingAxis), "\"");
    std::string out =
        absl::StrCat("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" ", size, " viewBox=\"0 0 ",
                     Coordinate(left_ + width_ + kDrawingRight), " ", Coordinate(bottom_ + kDrawingAxis), "\">\n<title>", Escape(title),
                     "</title>\n", kStyle, "\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
                     "<text class=\"h\" x=\"12\" y=\"24\">", Escape(title), "</text>\n");
    AddLegend(out);
    AddAxis(out);
    AddRows(out);
    const size_t drawn = std::min(timeline_.boxes.size(), kMaxDrawnBoxes);
    for (size_t i = 0; i < drawn; ++i) AddBox(timeline_.boxes[i], out);
    const double end = XOf(timeline_.step_s);
    absl::StrAppend(&out, "<line class=\"e\" x1=\"", Coordinate(end), "\" x2=\"", Coordinate(end), "\" y1=\"", Coordinate(kDrawingTop - 4),
                    "\" y2=\"", Coordinate(bottom_), "\"><title>", "the next step begins: ", Escape(Seconds(timeline_.step_s)),
                    "</title></line>\n");
    return out + "</svg>\n";
  }

 private:
  double HeightOf(size_t row) const { return timeline_.rows[row].is_link ? kLinkRow : kStageRow; }
  double XOf(double second) const { return left_ + second / last_s_ * width_; }

  void AddLegend(std::string& out) const {
    double x = 12;
    for (const Look& look : kLooks) {
      const bool used = std::any_of(timeline_.boxes.begin(), timeline_.boxes.end(),
                                    [&](const Timeline::Box& box) { return &LookOf(box.span.kind) == &look; });
      if (!used) continue;
      absl::StrAppend(&out, "<rect class=\"", look.css, "\" x=\"", Coordinate(x), "\" y=\"38\" width=\"12\" height=\"12\"/><text x=\"",
                      Coordinate(x + 17), "\" y=\"48\">", look.word, "</text>\n");
      x += 34 + kNameCharWidth * static_cast<double>(absl::string_view(look.word).size());
    }
    if (timeline_.boxes.size() <= kMaxDrawnBoxes && !timeline_.truncated) return;
    absl::StrAppend(&out, "<text x=\"", Coordinate(x), "\" y=\"48\">only the first ", kMaxDrawnBoxes, " boxes are drawn</text>\n");
  }

  void AddAxis(std::string& out) const {
    for (const double tick : NiceTicks(0, last_s_, static_cast<int>(width_ / 110))) {
      if (tick > last_s_) continue;
      const std::string at = Coordinate(XOf(tick));
      absl::StrAppend(&out, "<line class=\"a\" x1=\"", at, "\" x2=\"", at, "\" y1=\"", Coordinate(kDrawingTop - 4), "\" y2=\"",
                      Coordinate(bottom_), "\"/><text x=\"", at, "\" y=\"", Coordinate(bottom_ + 18), "\" text-anchor=\"middle\">",
                      tick == 0 ? "0" : Escape(Seconds(tick)), "</text>\n");
    }
  }

  void AddRows(std::string& out) const {
    for (size_t r = 0; r < timeline_.rows.size(); ++r) {
      absl::StrAppend(&out, "<rect class=\"b\" x=\"", Coordinate(left_), "\" y=\"", Coordinate(tops_[r]), "\" width=\"", Coordinate(width_),
                      "\" height=\"", Coordinate(HeightOf(r)), "\"/><text class=\"r\" x=\"", Coordinate(left_ - 8), "\" y=\"",
                      Coordinate(tops_[r] + HeightOf(r) / 2 + 4), "\">", Escape(ShortName(timeline_.rows[r].name)), "</text>\n");
    }
  }

  void AddBox(const Timeline::Box& box, std::string& out) const {
    const scheduler::TimelineSpan& span = box.span;
    const Look& look = LookOf(span.kind);
    const double from = XOf(span.begin_s), width = std::max(XOf(span.end_s) - from, 0.4);
    const double top = tops_[box.row], height = HeightOf(box.row), middle = top + height / 2;
    if (span.arrives_s > span.end_s) {
      absl::StrAppend(&out, "<line class=\"l\" x1=\"", Coordinate(from + width), "\" x2=\"", Coordinate(XOf(span.arrives_s)), "\" y1=\"",
                      Coordinate(middle), "\" y2=\"", Coordinate(middle), "\"/>");
    }
    const bool numbered = span.kind != Kind::kUpdate && span.kind != Kind::kTiedMessage && span.kind != Kind::kNorm;
    const std::string number = absl::StrCat(span.micro_batch);
    absl::StrAppend(&out, "<rect class=\"", look.css, "\" x=\"", Coordinate(from), "\" y=\"", Coordinate(top), "\" width=\"",
                    Coordinate(width), "\" height=\"", Coordinate(height), "\"><title>", look.word,
                    numbered ? absl::StrCat(" of micro-batch ", number) : std::string(), ", ", Escape(Seconds(span.end_s - span.begin_s)),
                    " from ", Escape(Seconds(span.begin_s)), "</title></rect>");
    if (numbered && width >= kRoomForNumber * static_cast<double>(number.size()) + 2) {
      absl::StrAppend(&out, "<text class=\"n\" x=\"", Coordinate(from + width / 2), "\" y=\"", Coordinate(middle + 3.5), "\">", number,
                      "</text>");
    }
    out += "\n";
  }

  const Timeline& timeline_;
  double last_s_;
  double left_ = 0, width_ = 0, bottom_ = 0;
  std::vector<double> tops_;
};

}  // namespace

std::string DrawPipeline(const scheduler::Timeline& timeline, const std::string& title) { return Drawing(timeline).Document(title); }

}  // namespace fusionllm::report
