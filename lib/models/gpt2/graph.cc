#include "lib/models/gpt2/graph.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "lib/opdag/graph_builder.h"

namespace fusionllm::models {
namespace {

using opdag::Graph;
using opdag::GraphBuilder;
using opdag::Initializer;
using opdag::kBatch;
using opdag::ParameterOverride;
using opdag::ValueId;

constexpr int64_t kMaxLayers = 10'000;
constexpr double kStandardDeviation = 0.02;

class Gpt2 {
 public:
  explicit Gpt2(const GptOptions& options) : options_(options), builder_("gpt2") {}

  absl::StatusOr<Graph> Build() {
    const ValueId tokens = builder_.Placeholder("tokens", "tokens", "i32", {kBatch, options_.sequence});
    const ValueId targets = builder_.Placeholder("targets", "labels", "i32", {kBatch, options_.sequence});
    ValueId x =
        builder_.Add("embed", "embedding", {tokens}, {{"vocab", options_.vocab}, {"dim", options_.embd}, {"positions", options_.positions}},
                     {Normal("transformer.wte.weight", kStandardDeviation), Normal("transformer.wpe.weight", kStandardDeviation)});
    for (int64_t layer = 0; layer < options_.layers && builder_.status().ok(); ++layer) x = Block(x, layer);
    x = LayerNorm("ln_f", "transformer.ln_f", x);
    const ValueId logits = builder_.Add("lm_head", "linear", {x}, {{"out", options_.vocab}, {"layout", std::string("oi")}, {"bias", false}},
                                        {Normal(options_.tied ? "transformer.wte.weight" : "lm_head.weight", kStandardDeviation)});
    return builder_.Finish(builder_.Add("loss", "cross_entropy", {logits, targets}));
  }

 private:
  static ParameterOverride Normal(std::string name, double deviation) {
    return {std::move(name), Initializer{Initializer::Kind::kNormal, deviation}, std::nullopt};
  }
  static ParameterOverride Zeros(std::string name) { return {std::move(name), Initializer{}, std::nullopt}; }

  ValueId LayerNorm(const std::string& op, const std::string& parameters, ValueId x) {
    return builder_.Add(op, "layer_norm", {x}, {{"epsilon", 1e-5}},
                        {{absl::StrCat(parameters, ".weight"), {}, {}}, {absl::StrCat(parameters, ".bias"), {}, {}}});
  }

  ValueId Linear(const std::string& op, const std::string& parameters, ValueId x, int64_t out, double deviation) {
    return builder_.Add(op, "linear", {x}, {{"out", out}, {"layout", std::string("io")}, {"bias", true}},
                        {Normal(absl::StrCat(parameters, ".weight"), deviation), Zeros(absl::StrCat(parameters, ".bias"))});
  }

  ValueId Block(ValueId x, int64_t layer) {
    const std::string op = absl::StrCat("block.", layer);
    const std::string h = absl::StrCat("transformer.h.", layer);
    const double residual = kStandardDeviation / std::sqrt(2.0 * static_cast<double>(options_.layers));

    ValueId y = LayerNorm(op + ".ln_1", h + ".ln_1", x);
    y = Linear(op + ".attn.c_attn", h + ".attn.c_attn", y, 3 * options_.embd, kStandardDeviation);
    y = builder_.Add(op + ".attn", "attention", {y}, {{"heads", options_.heads}, {"causal", true}});
    y = Linear(op + ".attn.c_proj", h + ".attn.c_proj", y, options_.embd, residual);
    x = builder_.Add(op + ".attn.add", "add", {x, y});

    y = LayerNorm(op + ".ln_2", h + ".ln_2", x);
    y = Linear(op + ".mlp.c_fc", h + ".mlp.c_fc", y, 4 * options_.embd, kStandardDeviation);
    y = builder_.Add(op + ".mlp.gelu", "gelu", {y}, {{"approximate", std::string("tanh")}});
    y = Linear(op + ".mlp.c_proj", h + ".mlp.c_proj", y, options_.embd, residual);
    return builder_.Add(op + ".mlp.add", "add", {x, y});
  }

  GptOptions options_;
  GraphBuilder builder_;
};

}  // namespace

absl::StatusOr<Graph> BuildGpt2(const GptOptions& options) {
  if (options.layers < 1 || options.layers > kMaxLayers) {
    return absl::InvalidArgumentError(absl::StrCat("gpt2: ", options.layers, " layers; 1 to ", kMaxLayers, " are possible"));
  }
  if (options.embd < 1 || options.heads < 1 || options.embd > (1 << 24) || options.embd % options.heads != 0) {
    return absl::InvalidArgumentError(absl::StrCat("gpt2: an embedding of ", options.embd, " is no multiple of ", options.heads, " heads"));
  }
  if (options.vocab < 1 || options.vocab > (1 << 28)) {
    return absl::InvalidArgumentError(absl::StrCat("gpt2: a vocabulary of ", options.vocab, " is not possible"));
  }
  if (options.sequence < 1 || options.positions > (1 << 28) || options.sequence > options.positions) {
    return absl::InvalidArgumentError(
        absl::StrCat("gpt2: a sequence of ", options.sequence, " tokens needs 1 to ", options.positions, " positions"));
  }
  return Gpt2(options).Build();
}

}  // namespace fusionllm::models
