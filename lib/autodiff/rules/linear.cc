#include "lib/autodiff/rules/families.h"

namespace fusionllm::autodiff::rules {
namespace {

using opdag::Attributes;
using opdag::ValueId;

// dW before dx is the order of the kernels' memory reuse; the runtime may still send dx first: nothing orders the two.
void Linear(RuleContext& c) {
  const std::string layout = c.attributes().Text("layout", "io");
  if (c.NeedsParameterGradients()) {
    const bool bias = c.op().parameters.size() > 1;
    const ValueId dweight = c.Emit("weight", OpKind::kLinearGradWeight, {c.input(0), c.dy()}, {{"layout", layout}, {"bias", bias}});
    c.SetParameterGradient(0, dweight);
    if (bias) c.SetParameterGradient(1, c.Output(dweight, 1));
  }
  if (c.NeedsInputGradient(0)) {
    const Attributes attributes = {{"layout", layout}, {"in", c.shape(c.input(0)).dim(-1)}};
    c.SetInputGradient(0, c.Emit("input", OpKind::kLinearGradInput, {c.dy()}, attributes, {c.op().parameters[0]}));
  }
}

ValueId Product(RuleContext& c, absl::string_view suffix, ValueId a, ValueId b, bool transpose_a, bool transpose_b) {
  return c.Emit(suffix, OpKind::kMatmul, {a, b}, {{"transpose_a", transpose_a}, {"transpose_b", transpose_b}});
}

ValueId SwapLastAxes(RuleContext& c, absl::string_view suffix, ValueId x) {
  std::vector<int64_t> permutation;
  const int rank = c.shape(x).rank();
  for (int i = 0; i + 2 < rank; ++i) permutation.push_back(i);
  permutation.push_back(rank - 1);
  permutation.push_back(rank - 2);
  return c.Emit(suffix, OpKind::kTranspose, {x}, {{"permutation", permutation}});
}

ValueId AsMatrix(RuleContext& c, absl::string_view suffix, ValueId x) {
  return c.Emit(suffix, OpKind::kReshape, {x}, {{"shape", std::vector<int64_t>{c.shape(x).rows(), c.shape(x).dim(-1)}}});
}

// With a' = a or its transpose, b' likewise, y = a' b': da' = dy b'^T and db' = a'^T dy.
ValueId GradA(RuleContext& c, bool ta, bool tb, bool shared_b) {
  const ValueId b = c.input(1);
  if (!ta) return Product(c, "a", c.dy(), b, false, !tb);
  if (!shared_b) return Product(c, "a", b, c.dy(), tb, true);
  const ValueId transposed = Product(c, "a_transposed", c.dy(), b, false, !tb);
  return c.status().ok() ? SwapLastAxes(c, "a", transposed) : opdag::kNone;
}

ValueId GradB(RuleContext& c, bool ta, bool tb, bool shared_b) {
  ValueId a = c.input(0);
  ValueId dy = c.dy();
  // A matrix b that all leading extents share: one product over all rows, unless a's rows lie across.
  if (shared_b && !ta) {
    a = AsMatrix(c, "a_matrix", a);
    dy = AsMatrix(c, "dy_matrix", dy);
  }
  const ValueId db = tb ? Product(c, "b", dy, a, true, ta) : Product(c, "b", a, dy, !ta, false);
  return shared_b && ta ? c.SumToInput(db, 1) : db;
}

void Matmul(RuleContext& c) {
  const bool ta = c.attributes().Bool("transpose_a");
  const bool tb = c.attributes().Bool("transpose_b");
  const bool shared_b = c.shape(c.input(1)).rank() == 2 && c.shape(c.input(0)).rank() > 2;
  if (c.NeedsInputGradient(0)) c.SetInputGradient(0, GradA(c, ta, tb, shared_b));
  if (c.NeedsInputGradient(1)) c.SetInputGradient(1, GradB(c, ta, tb, shared_b));
}

}  // namespace

void AddLinear(std::vector<GradientRule>& rules) {
  rules.push_back({OpKind::kLinear, Linear});
  rules.push_back({OpKind::kMatmul, Matmul});
}

}  // namespace fusionllm::autodiff::rules
