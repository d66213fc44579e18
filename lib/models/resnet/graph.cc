#include "lib/models/resnet/graph.h"

#include <array>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "lib/opdag/graph_builder.h"

namespace fusionllm::models {
namespace {

using opdag::Attributes;
using opdag::Graph;
using opdag::GraphBuilder;
using opdag::Initializer;
using opdag::kBatch;
using opdag::ValueId;

using Ints = std::vector<int64_t>;

struct Layout {
  bool bottleneck = false;
  std::array<int, 4> blocks{};
};

absl::StatusOr<Layout> LayoutOf(int depth) {
  switch (depth) {
    case 18:
      return Layout{false, {2, 2, 2, 2}};
    case 34:
      return Layout{false, {3, 4, 6, 3}};
    case 50:
      return Layout{true, {3, 4, 6, 3}};
    case 101:
      return Layout{true, {3, 4, 23, 3}};
    case 152:
      return Layout{true, {3, 8, 36, 3}};
    default:
      return absl::InvalidArgumentError(absl::StrCat("resnet: a depth of ", depth, " is unknown; 18, 34, 50, 101 or 152"));
  }
}

class ResNet {
 public:
  ResNet(const ResNetOptions& options, const Layout& layout)
      : options_(options), layout_(layout), builder_(absl::StrCat("resnet", options.depth)) {}

  absl::StatusOr<Graph> Build() {
    ValueId x = builder_.Placeholder("images", "images", "f32", {kBatch, options_.image_size, options_.image_size, 3});
    const ValueId labels = builder_.Placeholder("labels", "labels", "i32", {kBatch});
    x = Stem(x);
    int64_t channels = 64;
    for (int stage = 0; stage < 4; ++stage) {
      const int64_t planes = int64_t{64} << stage;
      for (int block = 0; block < layout_.blocks[stage]; ++block) {
        const int64_t stride = stage > 0 && block == 0 ? 2 : 1;
        x = Block(absl::StrCat("layer", stage + 1, ".", block), x, channels, planes, stride);
        channels = planes * (layout_.bottleneck ? 4 : 1);
      }
    }
    x = builder_.Add("avgpool", "global_avg_pool", {x});
    x = builder_.Add("fc", "linear", {x}, {{"out", options_.num_classes}, {"layout", std::string("oi")}, {"bias", true}});
    return builder_.Finish(builder_.Add("loss", "cross_entropy", {x, labels}));
  }

 private:
  // Convolution and batch norm, without the activation.
  ValueId ConvNorm(const std::string& conv, const std::string& norm, ValueId x, int64_t out, int64_t kernel, int64_t stride) {
    const int64_t padding = kernel / 2;
    const double deviation = std::sqrt(2.0 / static_cast<double>(out * kernel * kernel));
    const Attributes attributes = {{"out", out},
                                   {"kernel", Ints{kernel, kernel}},
                                   {"stride", Ints{stride, stride}},
                                   {"padding", Ints{padding, padding}},
                                   {"bias", false}};
    x = builder_.Add(conv, "conv2d", {x}, attributes,
                     {{absl::StrCat(conv, ".weight"), Initializer{Initializer::Kind::kNormal, deviation}, {}}});
    return builder_.Add(norm, "batch_norm", {x}, {{"epsilon", 1e-5}, {"momentum", 0.1}});
  }

  ValueId Relu(const std::string& name, ValueId x) { return builder_.Add(name, "relu", {x}); }

  ValueId Stem(ValueId x) {
    if (options_.stem == "cifar") return Relu("relu", ConvNorm("conv1", "bn1", x, 64, 3, 1));
    x = Relu("relu", ConvNorm("conv1", "bn1", x, 64, 7, 2));
    return builder_.Add("maxpool", "max_pool2d", {x}, {{"kernel", Ints{3, 3}}, {"stride", Ints{2, 2}}, {"padding", Ints{1, 1}}});
  }

  ValueId Block(const std::string& name, ValueId x, int64_t channels, int64_t planes, int64_t stride) {
    const int64_t out = planes * (layout_.bottleneck ? 4 : 1);
    ValueId y = x;
    if (layout_.bottleneck) {
      y = Relu(name + ".relu1", ConvNorm(name + ".conv1", name + ".bn1", y, planes, 1, 1));
      y = Relu(name + ".relu2", ConvNorm(name + ".conv2", name + ".bn2", y, planes, 3, stride));
      y = ConvNorm(name + ".conv3", name + ".bn3", y, out, 1, 1);
    } else {
      y = Relu(name + ".relu1", ConvNorm(name + ".conv1", name + ".bn1", y, planes, 3, stride));
      y = ConvNorm(name + ".conv2", name + ".bn2", y, out, 3, 1);
    }
    ValueId shortcut = x;
    if (stride != 1 || channels != out) shortcut = ConvNorm(name + ".downsample.0", name + ".downsample.1", x, out, 1, stride);
    return Relu(name + ".relu", builder_.Add(name + ".add", "add", {y, shortcut}));
  }

  ResNetOptions options_;
  Layout layout_;
  GraphBuilder builder_;
};

}  // namespace

absl::StatusOr<Graph> BuildResNet(const ResNetOptions& options) {
  const absl::StatusOr<Layout> layout = LayoutOf(options.depth);
  if (!layout.ok()) return layout.status();
  if (options.stem != "cifar" && options.stem != "imagenet") {
    return absl::InvalidArgumentError(absl::StrCat("resnet: the stem '", options.stem, "' is unknown; cifar or imagenet"));
  }
  if (options.num_classes < 1 || options.num_classes > (1 << 24)) {
    return absl::InvalidArgumentError(absl::StrCat("resnet: ", options.num_classes, " classes are not possible"));
  }
  if (options.image_size < 1 || options.image_size > (1 << 16)) {
    return absl::InvalidArgumentError(absl::StrCat("resnet: images of ", options.image_size, " pixels are not possible"));
  }
  return ResNet(options, *layout).Build();
}

}  // namespace fusionllm::models
