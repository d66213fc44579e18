#include "absl/strings/str_format.h"
#include "lib/base/status_macros.h"
#include "lib/compression/codec.h"
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
  Compressed(int stage, LinkCodecs links) : stage_(stage), links_(std::move(links)) {}

  absl::StatusOr<Payload> Encode(const CutEdge& edge, int slot, tensor::ConstTensorView value) override {
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
      FUSIONLLM_RETURN_IF_ERROR(compression::Encode(spec, Direction::kBackward, floats, MaskOf(spec, id, slot), nullptr, &out, nullptr));
    } else {
      const CodecSpec spec = SpecOf(stage_, edge.peer);
      FUSIONLLM_RETURN_IF_ERROR(compression::Encode(spec, Direction::kForward, floats, nullptr, &senders_[id], &out, &masks_[{id, slot}]));
    }
    return out;
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
  std::map<EdgeId, compression::EncoderState> senders_;
  std::map<std::pair<EdgeId, int>, Mask> masks_;
};

}  // namespace

EdgeCodecs CompressedEdgeCodec(int stage, LinkCodecs links) { return std::make_unique<Compressed>(stage, std::move(links)); }

}  // namespace fusionllm::runtime
