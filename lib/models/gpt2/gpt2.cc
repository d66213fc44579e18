#include "lib/models/gpt2/gpt2.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/base/pluralize.h"
#include "lib/base/status_macros.h"
#include "lib/models/config_json.h"
#include "lib/models/families.h"
#include "lib/models/gpt2/graph.h"
#include "lib/models/gpt2/recipe.h"
#include "lib/models/stored_modules.h"
#include "lib/models/template_lines.h"

namespace fusionllm::models {
namespace {

using nlohmann::json;

struct Gpt2Preset {
  const char* name;
  int64_t n_layer, n_head, n_embd, vocab_size;
};
constexpr Gpt2Preset kGpt2Presets[] = {{"tiny", 4, 4, 128, 256},
                                       {"small", 12, 12, 768, 50257},
                                       {"medium", 24, 16, 1024, 50257},
                                       {"large", 36, 20, 1280, 50257},
                                       {"xl", 48, 25, 1600, 50257}};

constexpr double kGpt2Epsilon = 1e-5;
// All three are the tanh approximation; gelu_fast multiplies in another order.
constexpr const char* kGpt2Gelus[] = {"gelu_new", "gelu_pytorch_tanh", "gelu_fast"};
constexpr char kGpt2Embedding[] = "transformer.wte.weight", kGpt2Head[] = "lm_head.weight", kGpt2Positions[] = "transformer.wpe.weight";
constexpr char kGpt2Blocks[] = "transformer.h.";
// GPT-2 is published as the model without its head, whose names lack the prefix that they have within the headed one. Some have the head,
// or something of their own, beside such names.
constexpr absl::string_view kGpt2Prefix = "transformer.", kGpt2BareEmbedding = "wte.weight";
constexpr absl::string_view kGpt2Body[] = {"wte.", "wpe.", "h.", "ln_f."};

FamilyFacts Gpt2Facts() {
  FamilyFacts facts = {.id = FamilyName::kGpt2,
                       .title = "GPT-2",
                       .samples = Samples::kTokens,
                       .settings = {"nLayer", "nHead", "nEmbd", "vocabSize", "blockSize", "tieWeights"},
                       .default_preset = "small",
                       .synonyms = {{"numlayers", "spec.model.config.nLayer"},
                                    {"numhiddenlayers", "spec.model.config.nLayer"},
                                    {"numheads", "spec.model.config.nHead"},
                                    {"numattentionheads", "spec.model.config.nHead"},
                                    {"hiddensize", "spec.model.config.nEmbd"},
                                    {"dmodel", "spec.model.config.nEmbd"},
                                    {"npositions", "spec.model.config.blockSize"}}};
  for (const Gpt2Preset& preset : kGpt2Presets) facts.presets.emplace_back(preset.name);
  return facts;
}

HuggingFaceFormat Gpt2HuggingFaceFormat() {
  return {.model_types = {"gpt2"},
          .architecture_prefixes = {"GPT2"},
          .sizes = {{.field = "nLayer", .key = "n_layer", .value = &ModelSettings::n_layer, .max = kMaxGptLayers, .layers = kGpt2Blocks},
                    {.field = "nHead", .key = "n_head", .value = &ModelSettings::n_head, .max = kMaxGptLayers, .absent_in_shapes = "heads"},
                    {.field = "nEmbd", .key = "n_embd", .value = &ModelSettings::n_embd, .max = kMaxGptWidth},
                    {.field = "vocabSize",
                     .key = "vocab_size",
                     .value = &ModelSettings::vocab_size,
                     .max = kMaxVocabulary,
                     .modules = {"transformer.wte"},
                     .shapes_head = true},
                    {.field = "blockSize",
                     .key = "n_positions",
                     .value = &ModelSettings::block_size,
                     .max = kMaxPositions,
                     .of_preset = false,
                     .modules = {"transformer.wpe"}}},
          .tied_head = {.head = kGpt2Head,
                        .embedding = kGpt2Embedding,
                        .field = "tieWeights",
                        .key = "tie_word_embeddings",
                        .value = &ModelSettings::tie_weights},
          .layer_tensor = ".ln_1.weight"};
}

// What the family cannot compute or leaves out.
void FindGpt2Problems(const json& document, ConfigJson& config) {
  const int64_t n_embd = *config.sizes.settings.n_embd;
  const auto unless = [&](const char* key, bool fits, absl::string_view wanted) {
    if (!fits) config.problems.push_back(absl::StrCat(key, " is ", Excerpt(document.at(key)), ", and family gpt2 has ", wanted));
  };
  const auto has = [&](const char* key) { return document.contains(key) && !document.at(key).is_null(); };
  const auto flag = [&](const char* key, bool wanted) {
    if (has(key)) unless(key, document.at(key) == wanted, wanted ? "true" : "false");
  };
  if (has("activation_function")) {
    const json& name = document.at("activation_function");
    const bool gelu = std::any_of(std::begin(kGpt2Gelus), std::end(kGpt2Gelus), [&](const char* known) { return name == known; });
    unless("activation_function", gelu, "gelu_new");
  }
  if (has("layer_norm_epsilon")) {
    const json& epsilon = document.at("layer_norm_epsilon");
    unless("layer_norm_epsilon", epsilon.is_number() && std::abs(epsilon.get<double>() - kGpt2Epsilon) < 1e-3 * kGpt2Epsilon, "1e-05");
  }
  if (has("n_inner")) unless("n_inner", document.at("n_inner") == 4 * n_embd, absl::StrCat("four times n_embd, ", 4 * n_embd));
  flag("scale_attn_weights", true);
  flag("scale_attn_by_inverse_layer_idx", false);
  flag("add_cross_attention", false);
  std::string dropouts;
  for (const char* key : {"attn_pdrop", "embd_pdrop", "resid_pdrop"}) {
    if (has(key) && document.at(key) != 0) absl::StrAppend(&dropouts, dropouts.empty() ? "" : ", ", key, " ", Excerpt(document.at(key)));
  }
  if (!dropouts.empty()) config.warnings.push_back(absl::StrCat("it was trained with dropout (", dropouts, "), and family gpt2 has none"));
}

class Gpt2Object : public Family {
 public:
  const FamilyFacts& facts() const override { return facts_; }

  ModelSizes Resolve(const ModelRequest& request, const Report& report) const override {
    ModelSizes sizes{.settings = request.settings};
    ModelSettings& s = sizes.settings;
    const Gpt2Preset& preset = kGpt2Presets[PresetIndex(request, report)];
    s.n_layer = s.n_layer.value_or(preset.n_layer);
    s.n_head = s.n_head.value_or(preset.n_head);
    s.n_embd = s.n_embd.value_or(preset.n_embd);
    s.vocab_size = s.vocab_size.value_or(preset.vocab_size);
    s.block_size = s.block_size.value_or(request.sequence_length);
    s.tie_weights = s.tie_weights.value_or(true);
    if (*s.n_embd % *s.n_head != 0) {
      const absl::string_view blamed = request.settings.n_head ? "spec.model.config.nHead" : "spec.model.config.nEmbd";
      report({blamed, "spec.model.config.nEmbd", "spec.model.preset"},
             absl::StrCat("nHead must divide nEmbd, and ", *s.n_embd, " is no multiple of ", *s.n_head));
    }
    if (request.sequence_length > *s.block_size) {
      report({"spec.training.sequenceLength", "spec.model.config.blockSize"},
             absl::StrCat("must be at most spec.model.config.blockSize, which is ", *s.block_size, ", got ", request.sequence_length));
    }
    if (request.data_kind == data::DatasetKind::kText && *s.vocab_size < 256) {
      report({"spec.model.config.vocabSize", "spec.data.kind"},
             absl::StrCat("must be at least 256 for data of kind text, whose tokens are bytes, got ", *s.vocab_size));
    }
    const double width = static_cast<double>(*s.n_embd);
    ReportTooManyParameters(width * (12 * width * static_cast<double>(*s.n_layer) + static_cast<double>(*s.vocab_size + *s.block_size)),
                            report);
    return sizes;
  }

  absl::StatusOr<opdag::Graph> Build(const ModelSizes& sizes, int64_t sequence_length) const override {
    const ModelSettings& s = sizes.settings;
    return BuildGpt2({.layers = *s.n_layer,
                      .heads = *s.n_head,
                      .embd = *s.n_embd,
                      .vocab = *s.vocab_size,
                      .positions = *s.block_size,
                      .sequence = sequence_length,
                      .tied = *s.tie_weights});
  }

  JobTemplate Template(data::DatasetKind data, const std::string& preset) const override {
    // Larger presets are GPT-2's own: its length of samples, and batches nearer to its 512 of them (Radford et al. 2019).
    const bool tiny = preset.empty() || preset == "tiny";
    return {
        .model = absl::StrCat("    family: gpt2                 # fusionctl explain spec.model.family lists the others\n",
                              BeforeRemark(absl::StrCat("    preset: ", preset.empty() ? "tiny" : preset)),
                              "# tiny: 0.8 million parameters in the blocks, seconds on a CPU; small (GPT-2's 124M), medium, large, xl\n",
                              data == data::DatasetKind::kText
                                  ? "    config: {vocabSize: 256}     # as many as there are bytes\n"
                                  : "    config: {vocabSize: 50257}   # as many as the tokenizer has: 50257 is GPT-2's\n",
                              "    # init: {from: hf}           # in place of preset and config: a checkpoint, or a folder of transformers "
                              "with model.safetensors\n"),
        .training = absl::StrCat(
            tiny ? "    steps: 200                   # there are no epochs: one is (tokens / (globalBatchSize x sequenceLength)) steps\n"
                   "    globalBatchSize: 16          # samples in a step, over all devices\n"
                 : "    steps: 1000                  # there are no epochs: one is (tokens / (globalBatchSize x sequenceLength)) steps\n"
                   "    globalBatchSize: 64          # samples in a step, over all devices; GPT-2 had 512\n",
            "    microBatchSize: auto         # samples in one pass; a number: the same bits in every run\n",
            tiny ? "    sequenceLength: 128          # tokens in a sample\n"
                 : "    sequenceLength: 1024         # tokens in a sample, as GPT-2's\n",
            "    # Learning rate by the model's size, warm-up, cosine and clipping are defaults of gpt2 (docs/reference/job-reference.md). "
            "To choose:\n"
            "    # optimizer: {name: adamw, learningRate: 1.0e-3, weightDecay: 0.1}\n"
            "    # schedule: {name: cosine, warmupSteps: 50, minLearningRate: 1.0e-4}\n",
            tiny ? "    # precision: bf16            # fp32 where it is left out\n"
                 : "    # precision: bf16            # fp32 where it is left out; half the bytes for values, and tensor cores on GPUs\n",
            "    evaluation: {everySteps: 50, batches: 4}\n")};
  }

  const TrainingRecipe* recipe() const override { return &Gpt2Recipe(); }

  double BlockWeights(const ModelSizes& sizes) const override {
    return TrainingRecipe::BlockWeights(*sizes.settings.n_layer, *sizes.settings.n_embd);
  }

  std::string SizeText(const ModelSizes& sizes) const override {
    return absl::StrCat(" of ", base::Pluralize(*sizes.settings.n_layer, "layer"), ", width ", *sizes.settings.n_embd);
  }

  const HuggingFaceFormat* hugging_face_format() const override { return &stored_; }

  // What the file leaves out is as in GPT2Config.
  absl::Status ReadConfig(const json& document, ConfigJson& config) const override {
    ModelSettings& s = config.sizes.settings;
    s.n_layer = 12;
    s.n_head = 12;
    s.n_embd = 768;
    s.vocab_size = 50257;
    s.block_size = 1024;
    s.tie_weights = true;
    FUSIONLLM_RETURN_IF_ERROR(ReadStoredSizes(document, config));
    FindGpt2Problems(document, config);
    return absl::OkStatus();
  }

  // What GPT2LMHeadModel.from_pretrained needs, and that there is no dropout. Tokens of a tokenizer that no one here knows are null.
  std::string FormatConfig(const ModelSizes& sizes) const override {
    const ModelSettings& s = sizes.settings;
    const nlohmann::ordered_json document = {{"architectures", json::array({"GPT2LMHeadModel"})},
                                             {"model_type", "gpt2"},
                                             {"n_layer", *s.n_layer},
                                             {"n_head", *s.n_head},
                                             {"n_embd", *s.n_embd},
                                             {"vocab_size", *s.vocab_size},
                                             {"n_positions", *s.block_size},
                                             {"tie_word_embeddings", *s.tie_weights},
                                             {"activation_function", "gelu_new"},
                                             {"layer_norm_epsilon", kGpt2Epsilon},
                                             {"attn_pdrop", 0.0},
                                             {"embd_pdrop", 0.0},
                                             {"resid_pdrop", 0.0},
                                             {"bos_token_id", nullptr},
                                             {"eos_token_id", nullptr}};
    return document.dump(2) + "\n";
  }

  TensorNameMap TensorNameMapFor(const std::function<bool(absl::string_view tensor)>& has) const override {
    if (has(kGpt2Embedding) || !has(kGpt2BareEmbedding)) return nullptr;
    return [](absl::string_view tensor) {
      const auto begins = [tensor](absl::string_view part) { return absl::StartsWith(tensor, part); };
      const bool body = std::any_of(std::begin(kGpt2Body), std::end(kGpt2Body), begins);
      return body ? absl::StrCat(kGpt2Prefix, tensor) : std::string(tensor);
    };
  }

  // The masks of its attention.
  bool IsBuffer(absl::string_view tensor) const override {
    return absl::StartsWith(tensor, kGpt2Blocks) && (absl::EndsWith(tensor, ".attn.bias") || absl::EndsWith(tensor, ".attn.masked_bias"));
  }

  std::vector<SizeDifference> DifferencesFrom(const StoredShapes& stored, const ModelSizes& sizes, const HeadFound& head) const override {
    const ModelSettings& s = sizes.settings;
    SizeDifferences found;
    if (const int64_t blocks = CountModules(stored, kGpt2Blocks); blocks > 0) found.Add("config.nLayer", blocks, *s.n_layer);
    if (const auto tokens = ExtentsOf(stored, kGpt2Embedding, 2)) {
      found.Add("config.nEmbd", (*tokens)[1], *s.n_embd);
      found.Add("config.vocabSize", (*tokens)[0], *s.vocab_size);
    }
    if (const auto positions = ExtentsOf(stored, kGpt2Positions, 2)) found.Add("config.blockSize", (*positions)[0], *s.block_size);
    if (head.unread) found.Add("config.tieWeights", "false", "true");
    if (head.missing) found.Add("config.tieWeights", "true", "false");
    return found.Take();
  }

 private:
  const FamilyFacts facts_ = Gpt2Facts();
  const HuggingFaceFormat stored_ = Gpt2HuggingFaceFormat();
};

}  // namespace

const Family& Gpt2Family() {
  static const Gpt2Object family;
  return family;
}

}  // namespace fusionllm::models
