// The values of greatest magnitude and where they were; of their gradients those under the same mask (codec.h says why).
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "lib/base/status_macros.h"
#include "lib/compression/codec.h"
#include "lib/compression/codecs/codecs.h"
#include "lib/compression/header.h"
#include "lib/compression/mask.h"
#include "lib/compression/quantize.h"
#include "lib/compression/select.h"

namespace fusionllm::compression {
namespace codecs {
namespace {

using opdag::ActivationKind;

// What a sender that backs off does not go below: where int4 alone loses less and is as small.
constexpr double kMinRatio = 4;
constexpr double kMinRatioOfInt4 = 2;  // whose messages are smaller

struct LossPoint {
  double ratio, loss_increase;
};
// docs/results/loss-cost.md, "The prior": top-k at one cut, the most that any model and seed lost, of several cuts each its share; ratio 1
// keeps everything. Whether the kept values are int8 or fp16 made no difference in the probe of docs/design/codec-limits.md and does not
// enter; int4 made none at a cut within a pre-norm stream, and 0.04 in front of its last norm: elsewhere it is priced as int4 is. At 2 what
// int4 costs: the 0.015 that was seen there is what runs differ by, and a plan of several such cuts lost 0.04 more than that.
constexpr std::array<LossPoint, 8> kStreamLoss = {
    {{1, 0}, {2, 0.03}, {3, 0.085}, {5, 0.15}, {8, 0.246}, {12, 0.408}, {30, 1.56}, {100, 2.245}}};
// Of three cuts within a pre-norm stream the one that lost most in the mean of its seeds, int8 and int4 values together, and no less than
// the GPT of 6 layers.
constexpr std::array<LossPoint, 9> kInnerLoss = {
    {{1, 0}, {2, 0.03}, {3, 0.042}, {4, 0.045}, {5, 0.06}, {8, 0.098}, {12, 0.14}, {30, 0.615}, {100, 1.65}}};
constexpr std::array<LossPoint, 6> kOtherLoss = {{{1, 0}, {2, 0.324}, {5, 0.758}, {8, 0.781}, {12, 1.02}, {30, 1.285}}};

// Top-k of what is no stream costs less in short runs: at 100 of 300 steps an MLP had lost up to 0.59 of what it lost in the end. Streams
// and int4 had lost as much by then, or more.
constexpr double kShortSteps = 100, kShortShare = 0.6, kFullSteps = 300;

bool IsStream(ActivationKind kind) {
  return kind == ActivationKind::kInnerResidual || kind == ActivationKind::kResidual || kind == ActivationKind::kAttentionInput;
}

std::span<const LossPoint> LossPointsOf(ActivationKind kind) {
  if (kind == ActivationKind::kInnerResidual) return kInnerLoss;
  return IsStream(kind) ? std::span<const LossPoint>(kStreamLoss) : kOtherLoss;
}

double LossAt(std::span<const LossPoint> points, double ratio) {
  size_t i = 1;
  while (i + 1 < points.size() && points[i].ratio < ratio) ++i;
  const LossPoint a = points[i - 1], b = points[i];
  return a.loss_increase + (b.loss_increase - a.loss_increase) * std::log(ratio / a.ratio) / std::log(b.ratio / a.ratio);
}

double ShareOfLength(int64_t steps) {
  if (steps <= 0) return 1;
  const double along = std::log(static_cast<double>(steps) / kShortSteps) / std::log(kFullSteps / kShortSteps);
  return kShortShare + (1 - kShortShare) * std::clamp(along, 0.0, 1.0);
}

// The shortest decimal that reads back as the same number.
std::string ShortestDecimal(double value) {
  for (int digits = 6; digits < 17; ++digits) {
    const std::string text = absl::StrFormat("%.*g", digits, value);
    double back = 0;
    if (absl::SimpleAtod(text, &back) && back == value) return text;
  }
  return absl::StrFormat("%.17g", value);
}

// What kept values may be written as, the fewest bits first.
std::vector<std::string> ValueNames() {
  std::vector<std::string> names;
  for (const Codec* codec : Codecs()) {
    if (codec->traits.values.has_value()) names.insert(names.begin(), codec->traits.name);
  }
  return names;
}

const DenseCodec& ValuesOf(const CodecSpec& spec, Direction direction) {
  return *FindValueCodec(direction == Direction::kForward ? spec.top_k_values : GradientValueKind(spec.top_k_values));
}

// A top-k message (with its mask) or a masked one (without).
absl::Status EncodeKept(const CodecSpec& spec, Layout layout, Direction direction, const Mask& mask, std::span<const float> kept,
                        std::vector<std::byte>* out) {
  const DenseCodec& values = ValuesOf(spec, direction);
  const size_t mask_bytes = layout == Layout::kTopK ? Mask::SerializedBytes(mask.elements(), mask.kept()) : 0;
  out->resize(kHeaderBytes + mask_bytes + values.ValueBytes(kept.size()));
  std::byte* payload = out->data() + kHeaderBytes;
  if (layout == Layout::kTopK) mask.Serialize(payload);
  FUSIONLLM_ASSIGN_OR_RETURN(const int32_t parameter, values.WriteValues(kept, payload + mask_bytes));
  WriteHeader({.layout = layout,
               .direction = direction,
               .values = static_cast<uint8_t>(*values.traits.values),
               .elements = static_cast<uint32_t>(mask.elements()),
               .kept = static_cast<uint32_t>(kept.size()),
               .parameter = parameter},
              out->data());
  return absl::OkStatus();
}

class TopKCodec final : public Codec {
 public:
  constexpr TopKCodec()
      : Codec(CodecTraits{
            .kind = CodecKind::kTopK,
            .name = "topk",
            .legend = "topk@R:VALUES: of R values the largest one, as VALUES with its position; gradients at the same positions",
            .bits_per_value = 0,   // one of many
            .encoding_passes = 4,  // the selection looks at the values several times: assumed, not measured
            .gradient = CodecKind::kTopK,
            .level = CodecKind::kTopK,
            .for_loss_inputs = CodecKind::kFp16,
            .after_divergence = CodecKind::kInt8}) {}

  int64_t PayloadBytes(const CodecSpec& spec, int64_t n, Direction direction, int64_t bytes_of_element) const override {
    const int64_t kept = KeptElements(spec.ratio, n);
    const auto values = static_cast<int64_t>(ValuesOf(spec, direction).ValueBytes(static_cast<size_t>(kept)));
    return values + (direction == Direction::kForward ? Mask::SerializedBytes(n, kept) : 0);
  }

  absl::Status Encode(const CodecSpec& spec, Direction direction, std::span<const float> values, const Mask& mask, EncoderState& state,
                      std::vector<std::byte>* out, Mask* mask_out) const override {
    if (direction == Direction::kBackward) {
      state.corrected.resize(mask.kept());
      mask.Gather(values, state.corrected);
      // Checked here to name an element by its place in the tensor, not among the kept.
      const size_t bad = FindUnencodable(state.corrected.data(), state.corrected.size());
      if (bad < state.corrected.size()) return UnencodableError(values, mask.Indices()[bad]);
      return EncodeKept(spec, Layout::kMasked, direction, mask, state.corrected, out);
    }
    const auto n = static_cast<int64_t>(values.size());
    FUSIONLLM_RETURN_IF_ERROR(SelectTopK(values, KeptElements(spec.ratio, n), &state.selection));
    Mask selected = Mask::FromIndices(n, state.selection.indices);
    FUSIONLLM_RETURN_IF_ERROR(EncodeKept(spec, Layout::kTopK, direction, selected, state.selection.values, out));
    if (mask_out != nullptr) *mask_out = std::move(selected);
    return absl::OkStatus();
  }

  double ExpectedLossIncrease(const CodecSpec& spec, ActivationKind kind, int64_t steps) const override {
    const double dropped = LossAt(LossPointsOf(kind), spec.ratio) * (IsStream(kind) ? 1 : ShareOfLength(steps));
    const DenseCodec& values = ValuesOf(spec, Direction::kForward);
    const double coarser = values.ExpectedLossIncrease({.kind = values.traits.kind}, kind, steps);
    return kind == ActivationKind::kInnerResidual ? std::max(dropped, coarser) : dropped + coarser;
  }

  std::vector<CodecSpec> LessAggressiveVariants(const CodecSpec& spec, Direction direction) const override {
    if (direction == Direction::kBackward) {
      if (spec.top_k_values == ValueKind::kFp16) return {};
      return {compression::TopK(spec.ratio, ValueKind::kFp16)};
    }
    std::vector<CodecSpec> variants;
    const double least = spec.top_k_values == ValueKind::kInt4 ? kMinRatioOfInt4 : kMinRatio;
    for (double ratio = spec.ratio / 2; ratio >= least; ratio /= 2) {
      variants.push_back(spec);
      variants.back().ratio = ratio;
    }
    return variants;
  }

  std::string Usage() const override { return absl::StrCat(traits.name, "@RATIO[:", absl::StrJoin(ValueNames(), "|:"), "]"); }
  std::string Parameters(const CodecSpec& spec) const override {
    return absl::StrCat(ShortestDecimal(spec.ratio), ":", ValuesOf(spec, Direction::kForward).traits.name);
  }
  absl::Status ParseParameters(absl::string_view text, std::optional<absl::string_view> parameters, CodecSpec* spec) const override {
    if (!parameters.has_value()) {
      return absl::InvalidArgumentError(absl::StrFormat("codec '%s' needs its ratio, as in '%s@20'", traits.name, traits.name));
    }
    const size_t colon = parameters->find(':');
    if (colon != absl::string_view::npos) {
      const absl::string_view name = parameters->substr(colon + 1);
      const Codec* values = FindCodec(name);
      if (values == nullptr || !values->traits.values.has_value()) {
        std::vector<std::string> names = ValueNames();
        const std::string last = std::move(names.back());
        names.pop_back();
        return absl::InvalidArgumentError(
            absl::StrCat("codec '", text, "': the values of top-k are ", absl::StrJoin(names, ", "), " or ", last, ", not '", name, "'"));
      }
      spec->top_k_values = *values->traits.values;
    }
    const absl::string_view ratio = parameters->substr(0, colon);
    if (absl::SimpleAtod(ratio, &spec->ratio)) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("codec '", text, "': '", ratio, "' is not a number"));
  }
  absl::Status CheckParameters(const CodecSpec& spec) const override {
    if (spec.ratio >= 1 && spec.ratio <= kMaxTopKRatio) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("top-k ratio ", spec.ratio, " is outside [1, ", kMaxTopKRatio, "]"));
  }
};

}  // namespace

const Codec& TopK() {
  static constexpr TopKCodec codec;
  return codec;
}

}  // namespace codecs

int64_t KeptElements(double ratio, int64_t n) {
  if (n == 0) return 0;
  const auto kept = static_cast<int64_t>(std::ceil(static_cast<double>(n) / ratio));
  return std::min(n, std::max<int64_t>(1, kept));
}

}  // namespace fusionllm::compression
