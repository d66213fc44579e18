#include "lib/autodiff/rules/families.h"

namespace fusionllm::autodiff::rules {
namespace {

using opdag::ValueId;

// Sum and mean: dy, with the reduced axes put back as ones, repeated over them.
void Spread(RuleContext& c, double factor) {
  std::vector<int64_t> kept = c.shape(c.input(0)).dims();
  for (const int64_t axis : c.attributes().Ints("axes")) kept[axis] = 1;
  ValueId dy = c.dy();
  if (factor != 1) dy = c.Emit("scaled", OpKind::kScale, {dy}, {{"factor", factor}});
  if (!c.attributes().Bool("keep_dims")) dy = c.Emit("kept", OpKind::kReshape, {dy}, {{"shape", kept}});
  c.SetInputGradient(0, c.Emit("", OpKind::kBroadcastTo, {dy}, {{"shape", c.shape(c.input(0)).dims()}}));
}

void Reduce(RuleContext& c) {
  const std::string kind = c.attributes().Text("kind");
  if (kind == "max") {
    opdag::Attributes attributes = {{"axes", c.attributes().Ints("axes")}, {"keep_dims", c.attributes().Bool("keep_dims")}};
    c.SetInputGradient(0, c.Emit("", OpKind::kReduceMaxGrad, {c.input(0), c.output(0), c.dy()}, std::move(attributes)));
    return;
  }
  const double repeated = static_cast<double>(c.type(c.input(0)).elements()) / static_cast<double>(c.type(c.output(0)).elements());
  Spread(c, kind == "mean" ? 1 / repeated : 1);
}

}  // namespace

void AddReduction(std::vector<GradientRule>& rules) { rules.push_back({OpKind::kReduce, Reduce}); }

}  // namespace fusionllm::autodiff::rules
