#include "lib/autodiff/testing/block_graphs.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/opdag/graph_builder.h"

namespace fusionllm::autodiff::testing {
namespace {

using opdag::ValueId;

class Network {
 public:
  ValueId images() const { return images_; }
  ValueId Linear(const std::string& name, ValueId x, int64_t out = kBlockWidth, const std::string& weight = "") {
    return builder_.Add(name, "linear", {x}, {{"out", out}, {"layout", std::string("io")}, {"bias", false}}, {{weight, {}, {}}});
  }
  ValueId Add(const std::string& name, const std::string& type, std::vector<ValueId> inputs) {
    return builder_.Add(name, type, std::move(inputs));
  }
  opdag::Graph Finish(ValueId x) { return builder_.Finish(builder_.Add("loss", "mse", {x, target_})).value(); }

 private:
  opdag::GraphBuilder builder_{"blocks", 2};
  const ValueId images_ = builder_.Placeholder("images", "images", "f32", {opdag::kBatch, kBlockWidth});
  const ValueId target_ = builder_.Placeholder("target", "images", "f32", {opdag::kBatch, kBlockWidth});
};

}  // namespace

opdag::Graph Chain(int linears, Weights weights) {
  Network network;
  ValueId x = network.images();
  for (int i = 1; i <= linears; ++i) {
    x = network.Linear(absl::StrCat("linear.", i), x, kBlockWidth, weights == Weights::kShared ? "shared" : "");
  }
  return network.Finish(x);
}

opdag::Graph ResidualBlocks(int blocks) {
  Network network;
  ValueId x = network.images();
  for (int i = 1; i <= blocks; ++i) {
    ValueId inside = network.Linear(absl::StrCat("up.", i), x, 4 * kBlockWidth);
    inside = network.Add(absl::StrCat("gelu.", i), "gelu", {inside});
    x = network.Add(absl::StrCat("sum.", i), "add", {x, network.Linear(absl::StrCat("down.", i), inside)});
  }
  return network.Finish(x);
}

opdag::Graph Diamonds(int diamonds) {
  Network network;
  ValueId x = network.images();
  for (int i = 1; i <= diamonds; ++i) {
    const ValueId left = network.Linear(absl::StrCat("left.", i), x), right = network.Linear(absl::StrCat("right.", i), x);
    x = network.Add(absl::StrCat("product.", i), "mul", {left, right});
  }
  return network.Finish(x);
}

opdag::Graph WithSharedTable(int blocks) {
  Network network;
  ValueId x = network.images();
  const ValueId table = network.Linear("table", x);
  for (int i = 1; i <= blocks; ++i) {
    x = network.Add(absl::StrCat("sum.", i), "add", {network.Linear(absl::StrCat("linear.", i), x), table});
    x = network.Add(absl::StrCat("gelu.", i), "gelu", {x});
  }
  return network.Finish(x);
}

}  // namespace fusionllm::autodiff::testing
