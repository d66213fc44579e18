#include <cmath>

#include "absl/strings/str_format.h"
#include "lib/base/status_macros.h"
#include "lib/compression/codec.h"
#include "lib/compression/guard.h"
#include "lib/runtime/edge_codec.h"

namespace fusionllm::runtime {
namespace {

using compression::CodecSpec;
using compression::Direction;
using compression::Mask;

// An edge of this stage, seen from either end: the forward value and the other stage.
using EdgeId = std::pair<opdag::ValueId, int>;

class Compressed : public EdgeCodec {
 public:
  Compressed(int stage, LinkCodecs links, int64_t comparison_period)
      : stage_(stage), links_(std::move(links)), comparison_period_(comparison_period) {}

  absl::StatusOr<Payload> Encode(const CutEdge& edge, int slot, tensor::ConstTensorView value, bool training) override {
    Payload out;
    if (value.type.dtype == tensor::DType::kI32) {
      FUSIONLLM_RETURN_IF_ERROR(compression::EncodeIntegers(Integers(value), &out));
      return out;
    }
    if (value.type.dtype != tensor::DType::kF32) return Unsupported(edge, value.type);
    const EdgeId id = {edge.of, edge.peer};
    const std::span<const float> floats = {value.f32(), static_cast<size_t>(value.type.elements())};
    if (edge.gradient) {
      const CodecSpec spec = SpecOf(edge.peer, stage_);
      const Mask* const mask = MaskOf(spec, id, slot);
      FUSIONLLM_RETURN_IF_ERROR(compression::Encode(spec, Direction::kBackward, floats, mask, nullptr, &out, nullptr));
      Watch(edge, spec, Direction::kBackward, floats, mask, out);
    } else {
      CodecSpec spec = SpecOf(stage_, edge.peer);
      spec.error_feedback = spec.error_feedback && training;
      compression::EncoderState& state = training ? senders_[id] : evaluators_[id];
      FUSIONLLM_RETURN_IF_ERROR(compression::Encode(spec, Direction::kForward, floats, nullptr, &state, &out, &masks_[{id, slot}]));
      if (training) Watch(edge, spec, Direction::kForward, floats, nullptr, out);
    }
    return out;
  }

  std::vector<float>* Residual(const CutEdge& edge) override {
    return !edge.gradient && SpecOf(stage_, edge.peer).error_feedback ? &senders_[{edge.of, edge.peer}].residual : nullptr;
  }

  std::map<int, LinkCompression> Compression() const override {
    struct Sums {
      double dense_bytes = 0, encoded_bytes = 0;
      double original_squares = 0, decoded_squares = 0, residual_squares = 0, product = 0;
      int64_t compared = 0;
    };
    std::map<int, Sums> by_peer;
    for (const auto& [key, sent] : sent_) {
      Sums& sums = by_peer[key.peer];
      sums.dense_bytes += static_cast<double>(sent.dense_bytes);
      sums.encoded_bytes += static_cast<double>(sent.encoded_bytes);
      sums.compared += sent.compared;
      const compression::CompressionError& error = sent.last;
      sums.original_squares += error.original_norm * error.original_norm;
      sums.decoded_squares += error.decoded_norm * error.decoded_norm;
      sums.residual_squares += error.residual_norm * error.residual_norm;
      sums.product += error.cosine * error.original_norm * error.decoded_norm;
    }
    std::map<int, LinkCompression> links;
    for (const auto& [peer, sums] : by_peer) {
      LinkCompression& link = links[peer];
      link.ratio = sums.encoded_bytes > 0 ? sums.dense_bytes / sums.encoded_bytes : 1;
      link.compared_messages = sums.compared;
      link.residual_norm = std::sqrt(sums.residual_squares);
      if (sums.original_squares > 0) link.relative_error = std::sqrt(sums.residual_squares / sums.original_squares);
      if (sums.original_squares > 0 && sums.decoded_squares > 0) {
        link.cosine = sums.product / std::sqrt(sums.original_squares * sums.decoded_squares);
      }
    }
    return links;
  }

  absl::Status Decode(const CutEdge& edge, int slot, const Payload& payload, tensor::TensorView out) override {
    if (out.type.dtype == tensor::DType::kI32) {
      return compression::DecodeIntegers(payload, {out.as<int32_t>(), static_cast<size_t>(out.type.elements())});
    }
    if (out.type.dtype != tensor::DType::kF32) return Unsupported(edge, out.type);
    const EdgeId id = {edge.of, edge.peer};
    const std::span<float> floats = {out.f32(), static_cast<size_t>(out.type.elements())};
    if (edge.gradient) {
      return compression::Decode(Direction::kBackward, payload, MaskOf(SpecOf(stage_, edge.peer), id, slot), floats, nullptr);
    }
    return compression::Decode(Direction::kForward, payload, nullptr, floats, &masks_[{id, slot}]);
  }

 private:
  struct SentKey {
    int peer;
    opdag::ValueId value;
    bool gradient;
    auto operator<=>(const SentKey&) const = default;
  };
  // Of the messages that training sent over one edge in one direction.
  struct Sent {
    explicit Sent(int64_t period) : sampler(period) {}
    compression::ComparisonSampler sampler;
    int64_t dense_bytes = 0, encoded_bytes = 0, compared = 0;
    compression::CompressionError last{};
  };

  void Watch(const CutEdge& edge, const CodecSpec& spec, Direction direction, std::span<const float> original, const Mask* mask,
             const Payload& encoded) {
    Sent& sent = sent_.try_emplace({edge.peer, edge.of, edge.gradient}, comparison_period_).first->second;
    sent.dense_bytes += static_cast<int64_t>(original.size_bytes());
    sent.encoded_bytes += static_cast<int64_t>(encoded.size());
    if (spec.kind == compression::CodecKind::kExact || !sent.sampler.Next()) return;
    decoded_.resize(original.size());
    // What was encoded just now decodes; if it did not, the receiver would say so.
    if (!compression::Decode(direction, encoded, mask, decoded_, nullptr).ok()) return;
    std::span<const float> decoded = decoded_;
    if (mask != nullptr && !mask->dense()) {  // what the forward message did not send has no gradient that could be lost
      kept_original_.resize(mask->kept());
      kept_decoded_.resize(mask->kept());
      mask->Gather(original, kept_original_);
      mask->Gather(decoded_, kept_decoded_);
      original = kept_original_;
      decoded = kept_decoded_;
    }
    const auto error = compression::CompareTensors(original, decoded);
    if (!error.ok()) return;
    sent.last = *error;
    ++sent.compared;
  }

  static std::span<const int32_t> Integers(tensor::ConstTensorView value) {
    return {value.as<int32_t>(), static_cast<size_t>(value.type.elements())};
  }

  static absl::Status Unsupported(const CutEdge& edge, const tensor::TensorType& type) {
    return absl::UnimplementedError(absl::StrFormat("value %d of type %s cannot cross a link", edge.value, type.ToString()));
  }

  CodecSpec SpecOf(int from, int to) const {
    const auto found = links_.find({from, to});
    return found == links_.end() ? compression::Exact() : found->second;
  }

  // The forward message's choice, when the codec made one.
  const Mask* MaskOf(const CodecSpec& spec, const EdgeId& id, int slot) const {
    if (spec.kind != compression::CodecKind::kTopK) return nullptr;
    const auto found = masks_.find({id, slot});
    return found == masks_.end() ? nullptr : &found->second;
  }

  const int stage_;
  const LinkCodecs links_;
  const int64_t comparison_period_;
  std::map<EdgeId, compression::EncoderState> senders_;
  std::map<EdgeId, compression::EncoderState> evaluators_;
  std::map<std::pair<EdgeId, int>, Mask> masks_;
  std::map<SentKey, Sent> sent_;
  std::vector<float> decoded_, kept_original_, kept_decoded_;  // buffers of Watch
};

}  // namespace

EdgeCodecs CompressedEdgeCodec(int stage, LinkCodecs links, int64_t comparison_period) {
  return std::make_unique<Compressed>(stage, std::move(links), comparison_period);
}

}  // namespace fusionllm::runtime
