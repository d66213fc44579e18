#include "lib/models/resnet/resnet.h"

#include <array>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "lib/models/families.h"
#include "lib/models/resnet/graph.h"
#include "lib/models/stored_modules.h"
#include "lib/models/template_lines.h"

namespace fusionllm::models {
namespace {

constexpr int64_t kCifarImageSize = 32;
constexpr int64_t kMnistImageSize = 28;

// Of a side, in pixels; 0 where only the files say it.
int64_t ImageSizeOf(const ModelRequest& request) {
  if (request.data_kind == data::DatasetKind::kShapes) return request.shapes.image_size;
  return request.data_kind == data::DatasetKind::kCifar10 ? kCifarImageSize : 0;
}

const char* StemText(Stem stem) { return stem == Stem::kCifar ? "cifar" : "imagenet"; }

// By its blocks; 0: of none that there is.
int64_t ResNetDepth(const StoredShapes& stored) {
  struct Depth {
    std::array<int64_t, 4> blocks;
    bool bottleneck;
    int64_t depth;
  };
  static constexpr std::array<Depth, 5> kDepths = {{{{2, 2, 2, 2}, false, 18},
                                                    {{3, 4, 6, 3}, false, 34},
                                                    {{3, 4, 6, 3}, true, 50},
                                                    {{3, 4, 23, 3}, true, 101},
                                                    {{3, 8, 36, 3}, true, 152}}};
  std::array<int64_t, 4> blocks = {};
  for (size_t i = 0; i < blocks.size(); ++i) blocks[i] = CountModules(stored, absl::StrCat("layer", i + 1, "."));
  const bool bottleneck = stored.contains("layer1.0.conv3.weight");
  for (const Depth& depth : kDepths) {
    if (depth.blocks == blocks && depth.bottleneck == bottleneck) return depth.depth;
  }
  return 0;
}

class ResNetObject : public Family {
 public:
  const FamilyFacts& facts() const override { return facts_; }

  ModelSizes Resolve(const ModelRequest& request, const Report& report) const override {
    ModelSizes sizes{.preset = facts_.presets[PresetIndex(request, report)], .settings = request.settings};
    ModelSettings& s = sizes.settings;
    const int64_t known_size = ImageSizeOf(request);
    s.stem = s.stem.value_or(Stem::kCifar);
    s.num_classes = s.num_classes.value_or(10);
    s.image_size = s.image_size.value_or(known_size > 0 ? known_size : kMnistImageSize);
    if (known_size > 0 && *s.image_size != known_size) {
      report({"spec.model.config.imageSize", "spec.data"},
             absl::StrCat("must be ", known_size, ", as the images of spec.data are, got ", *s.image_size));
    }
    if (request.data_kind == data::DatasetKind::kShapes && *s.num_classes < request.shapes.num_classes) {
      report({"spec.model.config.numClasses", "spec.data.shapes.numClasses"},
             absl::StrCat("must be at least spec.data.shapes.numClasses, which is ", request.shapes.num_classes, ", got ", *s.num_classes));
    }
    return sizes;
  }

  absl::StatusOr<opdag::Graph> Build(const ModelSizes& sizes, int64_t) const override {
    const ModelSettings& s = sizes.settings;
    return BuildResNet({.depth = DepthOf(sizes), .stem = StemText(*s.stem), .num_classes = *s.num_classes, .image_size = *s.image_size});
  }

  JobTemplate Template(data::DatasetKind, const std::string& preset) const override {
    return {.model = absl::StrCat("    family: resnet\n", BeforeRemark(absl::StrCat("    preset: ", preset.empty() ? "18" : preset)),
                                  "# 18, 34, 50, 101 or 152\n"
                                  "    config: {stem: cifar, numClasses: 10}   # stem cifar: for small images; imagenet: for 224 pixels\n"),
            .training = ImageTraining(", of which batch norm takes its statistics")};
  }

  std::string SampleAdvice(const tensor::Shape& given, data::DatasetKind data) const override {
    if (data != data::DatasetKind::kIdx || given.rank() != 3) return "";
    const int64_t height = given.dim(0), width = given.dim(1);
    if (height != width) return "; family resnet takes square images";
    return absl::StrCat("; give spec.model.config.imageSize: ", height);
  }

  std::vector<SizeDifference> DifferencesFrom(const StoredShapes& stored, const ModelSizes& sizes, const HeadFound&) const override {
    SizeDifferences found;
    if (const int64_t depth = ResNetDepth(stored); depth > 0) found.Add("preset", depth, DepthOf(sizes));
    if (const auto first = ExtentsOf(stored, "conv1.weight", 4)) {
      found.Add("config.stem", first->back() == 7 ? "imagenet" : "cifar", std::string(StemText(*sizes.settings.stem)));
    }
    if (const auto head = ExtentsOf(stored, "fc.weight", 2)) found.Add("config.numClasses", (*head)[0], *sizes.settings.num_classes);
    return found.Take();
  }

 private:
  static int DepthOf(const ModelSizes& sizes) {
    int depth = 0;
    return absl::SimpleAtoi(sizes.preset.value_or(""), &depth) ? depth : 0;
  }

  const FamilyFacts facts_ = {.id = FamilyName::kResnet,
                              .title = "ResNet",
                              .samples = Samples::kImages,
                              .settings = {"stem", "numClasses", "imageSize"},
                              .presets = {"18", "34", "50", "101", "152"},
                              .default_preset = "18"};
};

}  // namespace

const Family& ResNetFamily() {
  static const ResNetObject family;
  return family;
}

}  // namespace fusionllm::models
