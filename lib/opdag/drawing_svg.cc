#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "lib/opdag/accounting.h"
#include "lib/opdag/batch_types.h"
#include "lib/opdag/drawing.h"
#include "lib/opdag/drawing_layout.h"

namespace fusionllm::opdag {
namespace {

constexpr double kBoxWidth = 216, kBoxHeight = 46, kPitchX = 236, kPitchY = 70;
constexpr double kMargin = 24, kHeader = 58, kLegendRow = 22;
constexpr size_t kNameLength = 30;

std::string Escaped(absl::string_view text) {
  std::string escaped;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '<') {
      escaped += "&lt;";
    } else if (c == '>') {
      escaped += "&gt;";
    } else if (c == '&') {
      escaped += "&amp;";
    } else if (c == '"') {
      escaped += "&quot;";
    } else if (byte < 0x20 || byte >= 0x7f) {
      escaped += '?';  // control bytes are no XML, and others may not be UTF-8
    } else {
      escaped += c;
    }
  }
  return escaped;
}

std::string Shortened(absl::string_view name) {
  if (name.size() <= kNameLength) return std::string(name);
  return absl::StrCat("..", name.substr(name.size() - kNameLength + 2));
}

// Hues a golden angle apart differ for neighbours, however many stages there are.
std::string StageColour(int stage) { return absl::StrFormat("hsl(%d, 62%%, 84%%)", static_cast<int>(210 + 137.508 * stage) % 360); }

class Svg {
 public:
  Svg(const Graph& graph, const DrawingOptions& options) : graph_(graph), options_(options), layout_(drawing::ComputeLayout(graph)) {
    for (const int stage : options.stage_of_op) stages_ = std::max(stages_, stage + 1);
    coloured_ = options.stage_of_op.size() == graph.ops().size() && stages_ > 0;
    if (!coloured_) stages_ = 0;
    top_ = kMargin + kHeader + kLegendRow * std::min(stages_, kMaxLegend);
  }

  std::string Draw() {
    const double width = std::max(2 * kMargin + kPitchX * layout_.columns + kBow, 460.0);
    const double height = top_ + kPitchY * layout_.rows + kMargin;
    absl::StrAppendFormat(
        &out_,
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
        "viewBox=\"0 0 %.0f %.0f\" font-family=\"Helvetica, Arial, sans-serif\" font-size=\"11\">\n",
        width, height, width, height);
    out_ +=
        "<defs><marker id=\"arrow\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" orient=\"auto\">"
        "<path d=\"M0,0 L8,4 L0,8 z\" fill=\"#667\"/></marker></defs>\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
    Header();
    for (OpId id = 0; id < static_cast<OpId>(graph_.ops().size()); ++id) Edges(id);
    const std::vector<Footprint> weights = FootprintOfOps(graph_);
    for (OpId id = 0; id < static_cast<OpId>(graph_.ops().size()); ++id) Box(id, weights[id]);
    return out_ + "</svg>\n";
  }

 private:
  static constexpr int kMaxLegend = 64;
  static constexpr double kBow = 120;  // room for edges that skip rows

  double X(OpId id) const { return kMargin + kPitchX * layout_.column[id]; }  // centre
  double Y(OpId id) const { return top_ + kPitchY * layout_.row[id]; }        // upper edge

  void Header() {
    const Footprint weight = FootprintOf(graph_);
    std::string facts = absl::StrCat(graph_.ops().size(), " ops, ", FormatCount(static_cast<double>(weight.parameters)), " parameters");
    if (graph_.batch() > 0) {
      absl::StrAppend(&facts, ", ", FormatCount(weight.flops), "FLOP forward for a micro-batch of ", graph_.batch(), "; b: micro-batch");
    }
    absl::StrAppendFormat(&out_, "<text x=\"%.0f\" y=\"%.0f\" font-size=\"18\" font-weight=\"bold\">%s</text>\n", kMargin, kMargin + 14,
                          Escaped(graph_.name()));
    absl::StrAppendFormat(&out_, "<text x=\"%.0f\" y=\"%.0f\" fill=\"#445\">%s</text>\n", kMargin, kMargin + 34, Escaped(facts));
    for (int stage = 0; stage < std::min(stages_, kMaxLegend); ++stage) {
      const bool labelled = stage < static_cast<int>(options_.stage_labels.size());
      const std::string label = labelled ? options_.stage_labels[stage] : absl::StrCat("stage ", stage);
      const double y = kMargin + 46 + kLegendRow * stage;
      absl::StrAppendFormat(&out_, "<rect x=\"%.0f\" y=\"%.0f\" width=\"16\" height=\"14\" fill=\"%s\" stroke=\"#556\"/>", kMargin, y,
                            StageColour(stage));
      absl::StrAppendFormat(&out_, "<text x=\"%.0f\" y=\"%.0f\">%s</text>\n", kMargin + 24, y + 11, Escaped(label));
    }
  }

  void Edges(OpId reader) {
    for (const ValueId input : graph_.op(reader).inputs) {
      const Value& value = graph_.value(input);
      const OpId producer = value.producer;
      const bool cut = coloured_ && options_.stage_of_op[producer] != options_.stage_of_op[reader];
      const double x0 = X(producer), y0 = Y(producer) + kBoxHeight, x1 = X(reader), y1 = Y(reader);
      const int skipped = layout_.row[reader] - layout_.row[producer] - 1;
      std::string path;
      if (skipped <= 0) {
        const double middle = (y0 + y1) / 2;
        path = absl::StrFormat("M%.1f,%.1f C%.1f,%.1f %.1f,%.1f %.1f,%.1f", x0, y0, x0, middle, x1, middle, x1, y1);
      } else {
        const double right = std::max(x0, x1) + kBoxWidth / 2;
        const double bow = std::min(right + 16.0 + 8.0 * skipped, right + kBow * 0.9);
        path = absl::StrFormat("M%.1f,%.1f C%.1f,%.1f %.1f,%.1f %.1f,%.1f", x0 + kBoxWidth / 2, y0 - kBoxHeight / 2, bow, y0, bow, y1,
                               x1 + kBoxWidth / 2, y1 + kBoxHeight / 2);
      }
      absl::StrAppendFormat(
          &out_, "<path d=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"%s\" marker-end=\"url(#arrow)\"><title>%s</title></path>\n",
          path, cut ? "#c22" : "#889", cut ? "2" : "1.2", Escaped(absl::StrCat(value.name, "  ", types_[input])));
    }
  }

  void Box(OpId id, const Footprint& weight) {
    const Op& op = graph_.op(id);
    const double x = X(id) - kBoxWidth / 2;
    std::string hover = absl::StrCat(op.name, " = ", opdag::Name(op.kind), " {", ToString(op.attributes), "}");
    for (const ParameterId parameter : op.parameters) {
      absl::StrAppend(&hover, " | ", graph_.parameter(parameter).name, " ", graph_.parameter(parameter).type.ToString());
    }
    if (weight.flops > 0) absl::StrAppend(&hover, " | ", FormatCount(weight.flops), "FLOP");
    const std::string fill = coloured_ ? StageColour(std::max(options_.stage_of_op[id], 0)) : op.parameters.empty() ? "#f4f5f8" : "#dfe9f8";
    absl::StrAppendFormat(
        &out_, "<g><title>%s</title><rect x=\"%.1f\" y=\"%.1f\" width=\"%.0f\" height=\"%.0f\" rx=\"5\" fill=\"%s\" stroke=\"#556\"%s/>",
        Escaped(hover), x, Y(id), kBoxWidth, kBoxHeight, fill, op.inputs.empty() ? " stroke-dasharray=\"4 2\"" : "");
    absl::StrAppendFormat(&out_, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\" font-weight=\"bold\">%s</text>", X(id), Y(id) + 15,
                          Escaped(Shortened(op.name)));
    const std::string type = types_[op.outputs[0]];
    absl::StrAppendFormat(&out_, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\" fill=\"#334\">%s</text>", X(id), Y(id) + 28,
                          Escaped(absl::StrCat(opdag::Name(op.kind), type.empty() ? "" : "  ", type)));
    if (weight.parameters + weight.state_elements > 0) {
      absl::StrAppendFormat(&out_, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\" font-size=\"9\" fill=\"#667\">%s</text>", X(id),
                            Y(id) + 40, Escaped(absl::StrCat(FormatCount(static_cast<double>(weight.parameters)), " parameters")));
    }
    out_ += "</g>\n";
  }

  const Graph& graph_;
  const DrawingOptions& options_;
  const drawing::Layout layout_;
  const std::vector<std::string> types_ = TypesByBatch(graph_);
  int stages_ = 0;
  bool coloured_ = false;
  double top_ = 0;
  std::string out_;
};

}  // namespace

std::string DrawSvg(const Graph& graph, const DrawingOptions& options) { return Svg(graph, options).Draw(); }

}  // namespace fusionllm::opdag
