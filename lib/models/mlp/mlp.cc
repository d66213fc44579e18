#include "lib/models/mlp/mlp.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "lib/models/families.h"
#include "lib/models/mlp/graph.h"
#include "lib/models/template_lines.h"

namespace fusionllm::models {
namespace {

constexpr int64_t kShapesChannels = 3;

const char* ActivationText(Activation activation) {
  for (const auto& [name, value] : NamesOf(activation)) {
    if (value == activation) return name;
  }
  return "?";
}

class MlpObject : public Family {
 public:
  const FamilyFacts& facts() const override { return facts_; }

  ModelSizes Resolve(const ModelRequest& request, const Report& report) const override {
    if (request.preset) report({"spec.model.preset"}, "family mlp has no presets: give spec.model.config.layers");
    ModelSizes sizes{.settings = request.settings};
    const std::vector<int64_t>& layers = sizes.settings.layers;
    sizes.settings.activation = sizes.settings.activation.value_or(Activation::kRelu);
    if (layers.size() < 2) {
      report({"spec.model.config.layers"}, layers.empty() ? "required for family mlp" : "must have at least two widths, input and output");
    }
    const data::ShapesConfig& shapes = request.shapes;
    if (request.data_kind == data::DatasetKind::kShapes && layers.size() >= 2) {
      const int64_t pixels = kShapesChannels * shapes.image_size * shapes.image_size;
      if (layers.front() != pixels) {
        report({"spec.model.config.layers", "spec.data.shapes"},
               absl::StrCat("the first width must be the values of an image, 3 x ", shapes.image_size, " x ", shapes.image_size, " = ",
                            pixels, ", got ", layers.front()));
      }
      if (layers.back() < shapes.num_classes) {
        report({"spec.model.config.layers", "spec.data.shapes"},
               absl::StrCat("the last width must be at least spec.data.shapes.numClasses, which is ", shapes.num_classes, ", got ",
                            layers.back()));
      }
    }
    double parameters = 0;
    for (size_t i = 1; i < layers.size(); ++i) parameters += static_cast<double>(layers[i - 1]) * static_cast<double>(layers[i]);
    ReportTooManyParameters(parameters, report);
    return sizes;
  }

  absl::StatusOr<opdag::Graph> Build(const ModelSizes& sizes, int64_t) const override {
    return BuildMlp({.layers = sizes.settings.layers, .activation = ActivationText(*sizes.settings.activation)});
  }

  JobTemplate Template(data::DatasetKind data, const std::string&) const override {
    const bool idx = data == data::DatasetKind::kIdx;
    return {.model = absl::StrCat("    family: mlp\n    config: {layers: [", idx ? "784" : "3072", ", 256, 10]}   # widths, input first: ",
                                  idx ? "28 x 28 gray pixels, as MNIST's" : "32 x 32 pixels of 3 channels", ", to classes\n"),
            .training = ImageTraining("")};
  }

  std::string SampleAdvice(const tensor::Shape& given, data::DatasetKind) const override {
    return absl::StrCat("; let spec.model.config.layers begin with ", given.elements());
  }

 private:
  const FamilyFacts facts_ = {.id = FamilyName::kMlp,
                              .title = "MLP",
                              .samples = Samples::kImages,
                              .settings = {"layers", "activation"},
                              .size_field = "spec.model.config.layers",
                              .server_rules = {{"has(self.config) && has(self.config.layers) && size(self.config.layers) >= 2",
                                                "family mlp needs at least two widths, input and output", ".config.layers"}}};
};

}  // namespace

const Family& MlpFamily() {
  static const MlpObject family;
  return family;
}

}  // namespace fusionllm::models
