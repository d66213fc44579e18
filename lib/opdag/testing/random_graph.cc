#include "lib/opdag/testing/random_graph.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "absl/strings/str_cat.h"
#include "lib/opdag/graph_builder.h"

namespace fusionllm::opdag::testing {
namespace {

using Ints = std::vector<int64_t>;

class Generator {
 public:
  explicit Generator(const RandomGraphOptions& options) : options_(options), random_(options.seed), builder_("random", 2) {}

  Graph Run() {
    const ValueId x = builder_.Placeholder("x", "images", "f32", {kBatch, 3, 4});
    values_.push_back(Linear(x));
    for (int i = 0; i < options_.ops; ++i) Step();
    absl::StatusOr<Graph> graph = builder_.Finish(Loss());
    if (!graph.ok()) {
      std::fprintf(stderr, "seed %llu: %s\n", static_cast<unsigned long long>(options_.seed), graph.status().ToString().c_str());
      std::abort();
    }
    return *std::move(graph);
  }

 private:
  int64_t Below(int64_t bound) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(bound)); }
  const tensor::Shape& ShapeOf(ValueId value) const { return builder_.graph().value(value).type.shape; }
  ValueId Any() { return values_[Below(static_cast<int64_t>(values_.size()))]; }
  std::string NextName() {
    const int n = next_++;
    return options_.exotic && n % 5 == 0 ? absl::StrCat("odd \"name\" ", n) : absl::StrCat("op.", n, "/v");
  }
  ValueId Add(absl::string_view type, std::vector<ValueId> inputs, Attributes attributes = {}) {
    return builder_.Add(NextName(), type, std::move(inputs), std::move(attributes));
  }

  ValueId Linear(ValueId x) {
    const int64_t out = 1 + Below(4);
    const bool io = Below(2) == 0;
    const bool bias = Below(2) == 0;
    std::vector<ParameterOverride> choices;
    if (options_.layers && Below(2) == 0) {
      choices.push_back({absl::StrCat("shared.", ShapeOf(x).dim(-1), io ? "x" : "y", out), {}, {}});
      if (bias) choices.push_back({absl::StrCat("bias.", next_), {}, {}});
    } else if (options_.exotic && Below(2) == 0) {
      // Uses of the same extents share a weight.
      ParameterOverride weight{absl::StrCat("shared weight ", ShapeOf(x).dim(-1), io ? "x" : "y", out), {}, {}};
      if (Below(2) == 0) weight.initializer = Initializer{Initializer::Kind::kNormal, 0.1 * static_cast<double>(1 + Below(9))};
      if (Below(3) == 0) weight.trainable = false;
      choices.push_back(weight);
      if (bias) choices.push_back({absl::StrCat("bias.", next_), Initializer{Initializer::Kind::kOnes, 0}, {}});
    }
    return builder_.Add(NextName(), "linear", {x}, {{"out", out}, {"layout", std::string(io ? "io" : "oi")}, {"bias", bias}}, choices);
  }

  // log, sqrt and division on something that is at least one.
  ValueId AtLeastOne(ValueId x) { return Add("scale", {Add("square", {x})}, {{"factor", 0.5}, {"shift", 1.0}}); }

  void Unary() {
    static constexpr const char* kSmooth[] = {"tanh", "sigmoid", "gelu", "neg", "softmax", "log_softmax"};
    const ValueId x = Any();
    switch (Below(5)) {
      case 0:
        return values_.push_back(Add("exp", {Add("tanh", {x})}));
      case 1:
        return values_.push_back(Add(Below(2) == 0 ? "log" : "sqrt", {AtLeastOne(x)}));
      case 2:
        return values_.push_back(Add("scale", {x}, {{"factor", 0.25 * static_cast<double>(1 + Below(6))}, {"shift", 0.1}}));
      default:
        return values_.push_back(Add(kSmooth[Below(6)], {x}));
    }
  }

  void Binary() {
    const ValueId a = Any();
    ValueId b = Any();
    const int rank = std::min(ShapeOf(a).rank(), ShapeOf(b).rank());
    bool fits = ShapeOf(a).rank() == ShapeOf(b).rank();
    for (int i = 1; i <= rank && fits; ++i) {
      fits = ShapeOf(a).dim(-i) == ShapeOf(b).dim(-i) || ShapeOf(a).dim(-i) == 1 || ShapeOf(b).dim(-i) == 1;
    }
    if (!fits) b = Add("reduce", {a}, {{"kind", std::string("mean")}, {"axes", Ints{1}}, {"keep_dims", true}});
    switch (Below(4)) {
      case 0:
        return values_.push_back(Add("add", {a, b}));
      case 1:
        return values_.push_back(Add("sub", {a, b}));
      case 2:
        return values_.push_back(Add("mul", {Add("tanh", {a}), b}));
      default:
        return values_.push_back(Add("div", {a, AtLeastOne(b)}));
    }
  }

  void Matrix() {
    const ValueId x = Any();
    if (Below(2) == 0 || ShapeOf(x).rank() < 3) return values_.push_back(Linear(x));
    const bool transpose = Below(2) == 0;
    const ValueId y = Add("matmul", {x, x}, {{"transpose_a", transpose}, {"transpose_b", !transpose}});
    values_.push_back(Add("scale", {y}, {{"factor", 0.3}}));
  }

  // Never across the batch, so that the graph fits every micro-batch.
  void Movement() {
    const ValueId x = Any();
    const int rank = ShapeOf(x).rank();
    const int64_t axis = 1 + Below(rank - 1);
    const int64_t extent = ShapeOf(x)[static_cast<int>(axis)];
    switch (Below(7)) {
      case 0:
        return values_.push_back(Add("concat", {x, x, Add("neg", {x})}, {{"axis", axis}}));
      case 1:
        return values_.push_back(Add("slice", {x}, {{"axis", axis}, {"begin", extent / 2}, {"end", extent}}));
      case 2: {
        if (extent < 2) return;
        const ValueId first = Add("split", {x}, {{"axis", axis}, {"sizes", Ints{1, extent - 1}}});
        if (Below(2) == 0) values_.push_back(first);
        return values_.push_back(builder_.Output(first, 1));
      }
      case 3:
        return values_.push_back(Add("flatten", {x}));
      case 4:
        return values_.push_back(Add("reshape", {x}, {{"shape", Ints{kBatch, 1, -1}}}));
      case 5: {
        Ints permutation = {0};
        for (int i = rank - 1; i > 0; --i) permutation.push_back(i);
        return values_.push_back(Add("transpose", {x}, {{"permutation", permutation}}));
      }
      default: {
        Ints shape = {kBatch};
        for (int i = 1; i < rank; ++i) shape.push_back(ShapeOf(x)[i] == 1 ? 3 : ShapeOf(x)[i]);
        return values_.push_back(Add("broadcast_to", {x}, {{"shape", shape}}));
      }
    }
  }

  // A small divisor of n.
  int64_t Divisor(int64_t n) {
    int64_t divisor = 1 + Below(4);
    while (n % divisor != 0) --divisor;
    return divisor;
  }

  // All elements of a sample as an image.
  ValueId Images(ValueId x) {
    const int64_t elements = ShapeOf(x).elements() / ShapeOf(x)[0];
    const int64_t height = Divisor(elements), width = Divisor(elements / height);
    return Add("reshape", {x}, {{"shape", Ints{kBatch, height, width, elements / height / width}}});
  }

  ValueId Convolution(ValueId x) {
    const int64_t kernel_height = 1 + Below(3), kernel_width = 1 + Below(3);
    const int64_t groups = ShapeOf(x)[3] % 2 == 0 && Below(2) == 0 ? 2 : 1;
    return Add("conv2d", {x},
               {{"out", groups * (1 + Below(2))},
                {"kernel", Ints{kernel_height, kernel_width}},
                {"stride", Ints{1 + Below(2), 1}},
                {"padding", Ints{kernel_height / 2, kernel_width / 2}},
                {"groups", groups},
                {"bias", Below(2) == 0}});
  }

  ValueId Pool(ValueId x) {
    const int64_t height = std::min(ShapeOf(x)[1], 2 + Below(2)), width = std::min(ShapeOf(x)[2], 2 + Below(2));
    const char* type = Below(2) == 0 ? "max_pool2d" : "avg_pool2d";
    return Add(type, {x}, {{"kernel", Ints{height, width}}, {"stride", Ints{1, 1 + Below(2)}}, {"padding", Ints{height / 2, 0}}});
  }

  ValueId Attention(ValueId x) {
    if (ShapeOf(x).rank() != 3) x = Add("reshape", {x}, {{"shape", Ints{kBatch, ShapeOf(x)[1], -1}}});
    const int64_t heads = 1 + Below(2);
    const ValueId qkv = Add("linear", {x}, {{"out", 3 * heads * (1 + Below(2))}, {"layout", std::string("io")}, {"bias", true}});
    return Add("attention", {qkv}, {{"heads", heads}, {"causal", Below(2) == 0}});
  }

  // Tables of the same width are one parameter, for embeddings and heads alike.
  ParameterOverride Table(int64_t width) { return {absl::StrCat("table.", width), Initializer{Initializer::Kind::kNormal, 0.5}, {}}; }

  ValueId Embedding() {
    if (tokens_ == kNone) tokens_ = builder_.Placeholder("tokens", "tokens", "i32", {kBatch, 3});
    const int64_t width = 1 + Below(4);
    std::vector<ParameterOverride> tables = {Table(width)};
    const int64_t positions = Below(2) == 0 ? 0 : 3;
    if (positions > 0) tables.push_back({absl::StrCat("positions.", width), Initializer{Initializer::Kind::kNormal, 0.5}, {}});
    return builder_.Add(NextName(), "embedding", {tokens_}, {{"vocab", kRandomGraphVocabulary}, {"dim", width}, {"positions", positions}},
                        tables);
  }

  ValueId TiedHead(ValueId x) {
    return builder_.Add(NextName(), "linear", {x}, {{"out", kRandomGraphVocabulary}, {"layout", std::string("oi")}, {"bias", false}},
                        {Table(ShapeOf(x).dim(-1))});
  }

  ValueId Layer() {
    const ValueId x = Any();
    switch (Below(9)) {
      case 0:
        return Convolution(Images(x));
      case 1:
        return Pool(Images(x));
      case 2:
        return Add("batch_norm", {Images(x)}, {{"epsilon", 0.1}, {"momentum", 0.1}});
      case 3:
        return Attention(x);
      case 4:
        return Embedding();
      case 5:
        return TiedHead(x);
      case 6:
        return Add("dropout", {x}, {{"rate", 0.25}});
      case 7:
        return Add("global_avg_pool", {Images(x)});
      default:
        if (ShapeOf(x).rank() < 3 || Below(2) == 0) return Add("relu", {x});
        return Add("reduce", {x}, {{"kind", std::string("max")}, {"axes", Ints{1}}});
    }
  }

  void Step() {
    if (options_.layers && Below(2) == 0) return values_.push_back(Layer());
    switch (Below(6)) {
      case 0:
        return Unary();
      case 1:
        return Binary();
      case 2:
        return Matrix();
      case 3:
      case 4:
        return Movement();
      default: {
        const ValueId x = Any();
        if (ShapeOf(x).rank() > 2 && Below(2) == 0) {
          return values_.push_back(Add("reduce", {x}, {{"kind", std::string(Below(2) == 0 ? "sum" : "mean")}, {"axes", Ints{1}}}));
        }
        // A wide epsilon: rows of one element or of equal elements have no slope to speak of otherwise.
        return values_.push_back(Add("layer_norm", {x}, {{"epsilon", 0.1}}));
      }
    }
  }

  // Squares of everything that is not read, averaged and added up.
  ValueId Loss() {
    ValueId loss = kNone;
    for (const ValueId value : values_) {
      if (!builder_.status().ok() || !builder_.graph().value(value).consumers.empty()) continue;
      Ints axes;
      for (int i = 0; i < ShapeOf(value).rank(); ++i) axes.push_back(i);
      const ValueId term = Add("reduce", {Add("square", {value})}, {{"kind", std::string("mean")}, {"axes", axes}});
      loss = loss == kNone ? term : Add("add", {loss, term});
    }
    return loss;
  }

  const RandomGraphOptions options_;
  std::mt19937_64 random_;
  GraphBuilder builder_;
  std::vector<ValueId> values_;
  ValueId tokens_ = kNone;
  int next_ = 0;
};

}  // namespace

Graph RandomGraph(const RandomGraphOptions& options) { return Generator(options).Run(); }

}  // namespace fusionllm::opdag::testing
