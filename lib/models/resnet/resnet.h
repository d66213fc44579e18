// Family resnet: the fields it has in jobs, and the object (lib/models/family.h). graph.h has the network.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <utility>

#include "lib/models/family.h"

namespace fusionllm::models {

enum class Stem { kCifar, kImagenet };

constexpr std::array<std::pair<const char*, Stem>, 2> NamesOf(Stem) { return {{{"cifar", Stem::kCifar}, {"imagenet", Stem::kImagenet}}}; }

struct ResNetSettings {
  std::optional<Stem> stem;
  std::optional<int64_t> num_classes, image_size;
  bool operator==(const ResNetSettings&) const = default;
};

template <class V>
void Visit(V& v, ResNetSettings& s) {
  v.Field("stem", s.stem, {}, "resnet: cifar (3x3 stride 1, no pooling) or imagenet (7x7 stride 2, max-pool). Omitted: cifar.");
  v.Field("numClasses", s.num_classes, {.min = 1, .max = 1e6}, "Number of classes of family resnet. Omitted: 10.");
  v.Field("imageSize", s.image_size, {.min = 8, .max = 4096},
          "resnet: pixels of a side. Omitted: shapes.imageSize, 32 for cifar10, 28 for idx (that of MNIST; other files need it).");
}

// Presets are depths: He et al., arXiv 1512.03385, table 1.
const Family& ResNetFamily();

}  // namespace fusionllm::models
