#include "lib/opdag/batch_types.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace fusionllm::opdag {
namespace {

// `extent` as the graph has it, for micro-batches of `batch`; `doubled`: for twice as many samples.
std::string ExtentText(int64_t extent, int64_t doubled, int64_t batch) {
  if (doubled != 2 * extent || extent == 0 || extent % batch != 0) return absl::StrCat(extent);
  return extent == batch ? "b" : absl::StrCat(extent / batch, "b");
}

}  // namespace

std::vector<std::string> TypesByBatch(const Graph& graph) {
  std::vector<std::string> texts(graph.values().size());
  if (graph.batch() == 0) return texts;
  Graph doubled = graph;
  const bool known = InferTypes(doubled, 2 * graph.batch()).ok();
  for (size_t id = 0; id < texts.size(); ++id) {
    const tensor::TensorType& type = graph.values()[id].type;
    if (!known) {
      texts[id] = type.ToString();
      continue;
    }
    std::vector<std::string> extents;
    for (int axis = 0; axis < type.shape.rank(); ++axis) {
      extents.push_back(ExtentText(type.shape.dim(axis), doubled.values()[id].type.shape.dim(axis), graph.batch()));
    }
    texts[id] = absl::StrCat(Name(type.dtype), "[", absl::StrJoin(extents, ", "), "]");
  }
  return texts;
}

}  // namespace fusionllm::opdag
