// The text form of a graph, for files that people write (model.dag) and for tests.
//
//   graph "mlp" {                                        # a comment runs to the end of its line
//     x = placeholder() {dtype="f32", role="images", shape=[b, 784]}
//     y = placeholder() {dtype="i32", role="labels", shape=[b]}
//     fc = linear(x) {out=256}                           # owns fc.weight and fc.bias: <op>.<schema's parameter name>
//     head = linear(fc; @tied.weight, @head.bias) {out=10}   # parameters by name, all of them; a name used twice is shared
//     loss, correct = cross_entropy(head, y)             # names for further outputs; op:output works without: loss:correct
//     param @fc.weight f32[784, 256] normal(0.02)        # optional: another start (zeros, ones, normal(s), uniform(w)), frozen | trainable
//     return loss
//   }
//
// Statements stand in any order; the parser sorts ops topologically, ops that could go either way in the order of the text. Names hold
// letters, digits and _ . / - and need quotes otherwise ("a name") or when they are `param` or `return`. Numbers with a point or an
// exponent are reals, others integers; `b` in the attribute shape is the micro-batch. How parameters start by default: initializers.h.
// Ops that only autodiff makes are printed but refused by the parser. Parsing what was printed gives the same graph.
//
// Limits: 64 MiB of text, names of 512 bytes, lists of 64 entries, and those of graph.h. A graph must fit micro-batches of every size:
// parameters are sized with b = 1.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/opdag/graph.h"

namespace fusionllm::opdag {

// An untyped, verified graph. `file` names the text in errors. Errors: InvalidArgument, "model.dag:12:8: reason".
absl::StatusOr<Graph> ParseGraph(absl::string_view text, absl::string_view file);

// Ops in their order, one a line, then the parameters that do not start by default.
std::string PrintGraph(const Graph& graph);

}  // namespace fusionllm::opdag
