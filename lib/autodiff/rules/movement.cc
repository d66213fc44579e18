#include "absl/strings/str_cat.h"
#include "lib/autodiff/rules/families.h"

namespace fusionllm::autodiff::rules {
namespace {

using opdag::ValueId;

void BackToInputShape(RuleContext& c) {
  c.SetInputGradient(0, c.Emit("", OpKind::kReshape, {c.dy()}, {{"shape", c.shape(c.input(0)).dims()}}));
}

void Transpose(RuleContext& c) {
  const std::vector<int64_t> permutation = c.attributes().Ints("permutation");
  std::vector<int64_t> inverse(permutation.size());
  for (size_t i = 0; i < permutation.size(); ++i) inverse[permutation[i]] = static_cast<int64_t>(i);
  c.SetInputGradient(0, c.Emit("", OpKind::kTranspose, {c.dy()}, {{"permutation", inverse}}));
}

void Concat(RuleContext& c) {
  const int64_t axis = c.attributes().Int("axis");
  int64_t begin = 0;
  for (int i = 0; i < static_cast<int>(c.op().inputs.size()); ++i) {
    const int64_t end = begin + c.shape(c.input(i))[static_cast<int>(axis)];
    if (c.NeedsInputGradient(i))
      c.SetInputGradient(i, c.Emit(absl::StrCat("x", i), OpKind::kSlice, {c.dy()}, {{"axis", axis}, {"begin", begin}, {"end", end}}));
    begin = end;
  }
}

// Parts that no op needed have a gradient of zero.
void Split(RuleContext& c) {
  std::vector<ValueId> parts;
  for (int i = 0; i < static_cast<int>(c.op().outputs.size()); ++i) {
    const bool missing = c.dy(i) == opdag::kNone;
    parts.push_back(missing
                        ? c.Emit(absl::StrCat("zeros_", i), OpKind::kConstant, {}, {{"value", 0.0}, {"shape", c.shape(c.output(i)).dims()}})
                        : c.dy(i));
  }
  c.SetInputGradient(0, c.Emit("", OpKind::kConcat, parts, {{"axis", c.attributes().Int("axis")}}));
}

void Slice(RuleContext& c) {
  const int64_t axis = c.attributes().Int("axis");
  const int64_t extent = c.shape(c.input(0))[static_cast<int>(axis)];
  c.SetInputGradient(0,
                     c.Emit("", OpKind::kPadSlice, {c.dy()}, {{"axis", axis}, {"begin", c.attributes().Int("begin")}, {"extent", extent}}));
}

void BroadcastTo(RuleContext& c) { c.SetInputGradient(0, c.SumToInput(c.dy(), 0)); }

}  // namespace

void AddMovement(std::vector<GradientRule>& rules) {
  rules.push_back({OpKind::kReshape, BackToInputShape});
  rules.push_back({OpKind::kFlatten, BackToInputShape});
  rules.push_back({OpKind::kTranspose, Transpose});
  rules.push_back({OpKind::kConcat, Concat});
  rules.push_back({OpKind::kSplit, Split, true});
  rules.push_back({OpKind::kSlice, Slice});
  rules.push_back({OpKind::kBroadcastTo, BroadcastTo});
}

}  // namespace fusionllm::autodiff::rules
