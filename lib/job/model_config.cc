#include "lib/job/model_config.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/nearest_name.h"
#include "lib/job/checks.h"

namespace fusionllm::job {
namespace {

constexpr double kMaxParameters = 1e12;
constexpr int64_t kShapesChannels = 3;
constexpr int64_t kCifarImageSize = 32;
constexpr int64_t kMnistImageSize = 28;

struct GptPreset {
  const char* name;
  int64_t n_layer, n_head, n_embd, vocab_size;
};
constexpr GptPreset kGptPresets[] = {{"tiny", 4, 4, 128, 256},
                                     {"small", 12, 12, 768, 50257},
                                     {"medium", 24, 16, 1024, 50257},
                                     {"large", 36, 20, 1280, 50257},
                                     {"xl", 48, 25, 1600, 50257}};

constexpr const char* kResNetDepths[] = {"18", "34", "50", "101", "152"};

void ReportPreset(const std::string& preset, Family family, const Report& report) {
  const std::vector<std::string> choices = PresetsOf(family);
  const std::string near = base::NearestNameOrPart(preset, choices);
  report({"spec.model.preset"}, absl::StrCat("must be one of ", absl::StrJoin(choices, ", "), " for ", ToString(family), ", got \"", preset,
                                             "\"", near.empty() ? "" : absl::StrCat("; did you mean ", near, "?")));
}

void CheckParameters(double parameters, const Report& report) {
  if (parameters > kMaxParameters) report({"spec.model"}, "has more than 10^12 parameters, the limit");
}

GptConfig ResolveGpt(const Spec& spec, const Report& report) {
  const ModelSettings& settings = spec.model.config;
  const std::string preset_name = spec.model.preset.value_or("small");
  const auto* preset =
      std::find_if(std::begin(kGptPresets), std::end(kGptPresets), [&](const GptPreset& p) { return preset_name == p.name; });
  if (preset == std::end(kGptPresets)) {
    ReportPreset(preset_name, Family::kGpt2, report);
    preset = kGptPresets;
  }
  const GptConfig config = {.n_layer = settings.n_layer.value_or(preset->n_layer),
                            .n_head = settings.n_head.value_or(preset->n_head),
                            .n_embd = settings.n_embd.value_or(preset->n_embd),
                            .vocab_size = settings.vocab_size.value_or(preset->vocab_size),
                            .block_size = settings.block_size.value_or(spec.training.sequence_length),
                            .tie_weights = settings.tie_weights.value_or(true)};
  if (config.n_embd % config.n_head != 0) {
    const absl::string_view blamed = settings.n_head ? "spec.model.config.nHead" : "spec.model.config.nEmbd";
    report({blamed, "spec.model.config.nEmbd", "spec.model.preset"},
           absl::StrCat("nHead must divide nEmbd, and ", config.n_embd, " is no multiple of ", config.n_head));
  }
  if (spec.training.sequence_length > config.block_size) {
    report(
        {"spec.training.sequenceLength", "spec.model.config.blockSize"},
        absl::StrCat("must be at most spec.model.config.blockSize, which is ", config.block_size, ", got ", spec.training.sequence_length));
  }
  if (spec.data.kind == DataKind::kText && config.vocab_size < 256) {
    report({"spec.model.config.vocabSize", "spec.data.kind"},
           absl::StrCat("must be at least 256 for data of kind text, whose tokens are bytes, got ", config.vocab_size));
  }
  const double width = static_cast<double>(config.n_embd);
  CheckParameters(width * (12 * width * static_cast<double>(config.n_layer) + static_cast<double>(config.vocab_size + config.block_size)),
                  report);
  return config;
}

// Of a side, in pixels; 0 where only the files say it.
int64_t ImageSizeOf(const Data& data) {
  if (data.kind == DataKind::kShapes) return data.shapes.image_size;
  return data.kind == DataKind::kCifar10 ? kCifarImageSize : 0;
}

ResNetConfig ResolveResNet(const Spec& spec, const Report& report) {
  const std::string preset = spec.model.preset.value_or("18");
  int64_t depth = 18;
  if (std::find(std::begin(kResNetDepths), std::end(kResNetDepths), preset) == std::end(kResNetDepths)) {
    ReportPreset(preset, Family::kResnet, report);
  } else if (!absl::SimpleAtoi(preset, &depth)) {
    depth = 18;
  }
  const int64_t known_size = ImageSizeOf(spec.data);
  const ResNetConfig config = {.depth = depth,
                               .stem = spec.model.config.stem.value_or(Stem::kCifar),
                               .num_classes = spec.model.config.num_classes.value_or(10),
                               .image_size = spec.model.config.image_size.value_or(known_size > 0 ? known_size : kMnistImageSize)};
  if (known_size > 0 && config.image_size != known_size) {
    report({"spec.model.config.imageSize", "spec.data"},
           absl::StrCat("must be ", known_size, ", as the images of spec.data are, got ", config.image_size));
  }
  if (spec.data.kind == DataKind::kShapes && config.num_classes < spec.data.shapes.num_classes) {
    report({"spec.model.config.numClasses", "spec.data.shapes.numClasses"},
           absl::StrCat("must be at least spec.data.shapes.numClasses, which is ", spec.data.shapes.num_classes, ", got ",
                        config.num_classes));
  }
  return config;
}

MlpConfig ResolveMlp(const Spec& spec, const Report& report) {
  if (spec.model.preset) report({"spec.model.preset"}, "family mlp has no presets: give spec.model.config.layers");
  const MlpConfig config = {.layers = spec.model.config.layers, .activation = spec.model.config.activation.value_or(Activation::kRelu)};
  if (config.layers.size() < 2) {
    report({"spec.model.config.layers"},
           config.layers.empty() ? "required for family mlp" : "must have at least two widths, input and output");
  }
  const Shapes& shapes = spec.data.shapes;
  if (spec.data.kind == DataKind::kShapes && config.layers.size() >= 2) {
    const int64_t pixels = kShapesChannels * shapes.image_size * shapes.image_size;
    if (config.layers.front() != pixels) {
      report({"spec.model.config.layers", "spec.data.shapes"},
             absl::StrCat("the first width must be the values of an image, 3 x ", shapes.image_size, " x ", shapes.image_size, " = ",
                          pixels, ", got ", config.layers.front()));
    }
    if (config.layers.back() < shapes.num_classes) {
      report({"spec.model.config.layers", "spec.data.shapes"},
             absl::StrCat("the last width must be at least spec.data.shapes.numClasses, which is ", shapes.num_classes, ", got ",
                          config.layers.back()));
    }
  }
  double parameters = 0;
  for (size_t i = 1; i < config.layers.size(); ++i) {
    parameters += static_cast<double>(config.layers[i - 1]) * static_cast<double>(config.layers[i]);
  }
  CheckParameters(parameters, report);
  return config;
}

// Reports the overrides that another family owns.
void CheckOwners(const Spec& spec, const Report& report) {
  const ModelSettings& c = spec.model.config;
  const struct {
    const char* name;
    bool given;
    Family owner;
  } fields[] = {{"nLayer", c.n_layer.has_value(), Family::kGpt2},
                {"nHead", c.n_head.has_value(), Family::kGpt2},
                {"nEmbd", c.n_embd.has_value(), Family::kGpt2},
                {"vocabSize", c.vocab_size.has_value(), Family::kGpt2},
                {"blockSize", c.block_size.has_value(), Family::kGpt2},
                {"tieWeights", c.tie_weights.has_value(), Family::kGpt2},
                {"stem", c.stem.has_value(), Family::kResnet},
                {"numClasses", c.num_classes.has_value(), Family::kResnet},
                {"imageSize", c.image_size.has_value(), Family::kResnet},
                {"layers", !c.layers.empty(), Family::kMlp},
                {"activation", c.activation.has_value(), Family::kMlp}};
  for (const auto& field : fields) {
    if (!field.given || spec.model.family == field.owner) continue;
    report({absl::StrCat("spec.model.config.", field.name)}, absl::StrCat("belongs to family ", ToString(field.owner)));
  }
}

void CheckDataFits(const Spec& spec, const Report& report) {
  if (!spec.model.family) return;
  const bool tokens = IsOfTokens(spec.data.kind);
  if (tokens == (spec.model.family == Family::kGpt2)) return;
  report({"spec.data.kind", "spec.model.family"},
         absl::StrCat("family ", ToString(*spec.model.family), " trains on ", tokens ? "images (cifar10, idx, shapes)" : "text or tokens",
                      ", got ", ToString(spec.data.kind)));
}

std::optional<ResolvedModel> ResolveReporting(const Spec& spec, const Report& report) {
  const Model& model = spec.model;
  if (model.family.has_value() == model.graph.has_value()) {
    report({"spec.model"}, "must have exactly one of family and graph");
    return std::nullopt;
  }
  CheckOwners(spec, report);
  CheckDataFits(spec, report);
  if (model.graph) {
    if (model.graph->file.has_value() == model.graph->inline_text.has_value()) {
      report({"spec.model.graph"}, "must have exactly one of file and inline");
    }
    if (model.preset) report({"spec.model.preset"}, "belongs to a family, not to a graph");
    return *model.graph;
  }
  switch (*model.family) {
    case Family::kGpt2:
      return ResolveGpt(spec, report);
    case Family::kResnet:
      return ResolveResNet(spec, report);
    case Family::kMlp:
      return ResolveMlp(spec, report);
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::string> PresetsOf(Family family) {
  std::vector<std::string> names;
  if (family == Family::kResnet) names.assign(std::begin(kResNetDepths), std::end(kResNetDepths));
  if (family == Family::kGpt2) {
    for (const GptPreset& preset : kGptPresets) names.emplace_back(preset.name);
  }
  return names;
}

void CheckModel(const Spec& spec, const Report& report) { ResolveReporting(spec, report); }

absl::StatusOr<ResolvedModel> ResolveModel(const Spec& spec) {
  std::vector<std::string> findings;
  std::optional<ResolvedModel> model =
      ResolveReporting(spec, [&](std::initializer_list<absl::string_view> paths, absl::string_view message) {
        findings.push_back(absl::StrCat(*paths.begin(), ": ", message));
      });
  if (!findings.empty() || !model) return absl::InvalidArgumentError(absl::StrJoin(findings, "\n"));
  return *std::move(model);
}

}  // namespace fusionllm::job
