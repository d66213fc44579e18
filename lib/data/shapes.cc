#include "lib/data/shapes.h"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "lib/base/philox.h"
#include "lib/data/images.h"

namespace fusionllm::data {
namespace {

// Words of the random stream that are set aside for the parameters of one image, before those of its pixels.
constexpr uint64_t kParameterWords = 32;
constexpr int64_t kNoise = 24;  // bytes, either way

// A shape in pixels: its centre, half its width, and the period of a pattern.
struct Figure {
  int64_t label, x, y, radius, period;
};

// Whether the pixel (dx, dy) away from the centre belongs to the figure.
bool Covers(const Figure& figure, int64_t dx, int64_t dy) {
  const int64_t r = figure.radius;
  const int64_t ax = std::abs(dx), ay = std::abs(dy);
  const bool in_box = ax <= r && ay <= r;
  const auto band = [&](int64_t at) { return (at + 2 * r) / figure.period % 2 == 0; };  // at >= -2r in the box
  switch (figure.label) {
    case 0:
      return dx * dx + dy * dy <= r * r;
    case 1:
      return in_box;
    case 2:  // apex up
      return in_box && 2 * ax <= dy + r;
    case 3:
      return in_box && (3 * ax <= r || 3 * ay <= r);
    case 4:
      return dx * dx + dy * dy <= r * r && 4 * (dx * dx + dy * dy) >= r * r;
    case 5:
      return in_box && band(dy);
    case 6:
      return in_box && band(dx);
    case 7:
      return in_box && band(dx + dy);
    case 8:
      return in_box && band(dx) == band(dy);
    default:
      return ax + ay <= r;
  }
}

class Shapes : public Dataset {
 public:
  explicit Shapes(const ShapesConfig& config)
      : Dataset(config.samples, {{tensor::DType::kF32, {config.image_size, config.image_size, 3}}, {tensor::DType::kI32, {}}}),
        size_(config.image_size),
        num_classes_(config.num_classes),
        random_(config.seed, "shapes"),
        scale_(0.5, 0.25) {}

 protected:
  absl::Status FillSample(int64_t index, void* input, void* target) const override {
    const int64_t label = index % num_classes_;
    if (target != nullptr) *static_cast<int32_t*>(target) = static_cast<int32_t>(label);
    if (input != nullptr) Draw(index, label, static_cast<float*>(input));
    return absl::OkStatus();
  }

 private:
  void Draw(int64_t index, int64_t label, float* pixel) const {
    const uint64_t base = static_cast<uint64_t>(index) * (kParameterWords + static_cast<uint64_t>(size_ * size_));
    uint64_t word = 0;
    const auto draw = [&](int64_t low, int64_t high) {  // inclusive
      return low + static_cast<int64_t>(random_.Uint32(base + word++) % static_cast<uint64_t>(high - low + 1));
    };
    const int64_t radius = draw(size_ / 5, size_ * 2 / 5);
    const Figure figure = {label, draw(radius, size_ - 1 - radius), draw(radius, size_ - 1 - radius), radius,
                           draw(std::max<int64_t>(1, radius / 3), std::max<int64_t>(1, radius / 2))};
    // One of the two is bright and the other dark in every channel: a shape is never invisible.
    const bool bright = draw(0, 1) == 1;
    std::array<int64_t, 3> ink, paper;
    for (size_t c = 0; c < 3; ++c) {
      ink[c] = draw(0, 95) + (bright ? 160 : 0);
      paper[c] = draw(0, 95) + (bright ? 0 : 160);
    }
    for (int64_t y = 0; y < size_; ++y) {
      for (int64_t x = 0; x < size_; ++x) {
        const auto& colour = Covers(figure, x - figure.x, y - figure.y) ? ink : paper;
        const uint32_t noise = random_.Uint32(base + kParameterWords + static_cast<uint64_t>(y * size_ + x));
        for (size_t c = 0; c < 3; ++c) {
          const int64_t byte = colour[c] + static_cast<int64_t>(noise >> (8 * c) & 0xff) % (2 * kNoise + 1) - kNoise;
          *pixel++ = scale_[static_cast<uint8_t>(std::clamp<int64_t>(byte, 0, 255))];
        }
      }
    }
  }

  int64_t size_;
  int64_t num_classes_;
  base::CounterRng random_;
  PixelScale scale_;
};

absl::Status CheckRange(absl::string_view what, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("shapes.", what, " is ", value, " but must be in ", low, " .. ", high));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> OpenShapes(const DatasetConfig& config) {
  const ShapesConfig& shapes = config.shapes;
  for (const absl::Status& status :
       {CheckRange("samples", shapes.samples, 1, int64_t{1} << 31), CheckRange("imageSize", shapes.image_size, 8, 512),
        CheckRange("numClasses", shapes.num_classes, 2, 10)}) {
    if (!status.ok()) return status;
  }
  if (config.num_classes > 0 && shapes.num_classes > config.num_classes) {
    return absl::InvalidArgumentError(
        absl::StrCat("spec.data.shapes.numClasses is ", shapes.num_classes, ", but the model has only ", config.num_classes, " classes"));
  }
  return std::make_unique<Shapes>(shapes);
}

}  // namespace fusionllm::data
