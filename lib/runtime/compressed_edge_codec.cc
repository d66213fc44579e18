#include <cmath>

#include "absl/strings/str_format.h"
#include "lib/base/status_macros.h"
#ifdef FUSIONLLM_CUDA
#include "lib/compression/cuda/codec.h"
#endif
#include "lib/compression/guard.h"
#include "lib/compression/loss_prior.h"
#include "lib/compression/tensor_codec.h"
#include "lib/runtime/edge_codec.h"

namespace fusionllm::runtime {
namespace {

using compression::CodecSpec;
using compression::Direction;
using compression::Selection;
using Pending = std::unique_ptr<compression::PendingMessage>;

// An edge of this stage, seen from either end: the forward value and the other stage.
using EdgeId = std::pair<opdag::ValueId, int>;

class Compressed : public EdgeCodec {
 public:
  Compressed(int stage, LinkCodecs links, int64_t comparison_period, std::unique_ptr<compression::TensorCodec> codec,
             std::vector<opdag::ActivationKind> kinds)
      : stage_(stage),
        links_(std::move(links)),
        kinds_(std::move(kinds)),
        comparison_period_(comparison_period),
        codec_(std::move(codec)) {}

  tensor::Memory& memory() const override { return codec_->memory(); }

  absl::StatusOr<Payload> Encode(const CutEdge& edge, int slot, tensor::ConstTensorView value, bool training) override {
    FUSIONLLM_ASSIGN_OR_RETURN(const Pending message, StartEncode(edge, slot, value, training));
    Payload out;
    FUSIONLLM_RETURN_IF_ERROR(message->Finish(&out));
    return out;
  }

  absl::StatusOr<Pending> StartEncode(const CutEdge& edge, int slot, tensor::ConstTensorView value, bool training) override {
    if (value.type.dtype == tensor::DType::kI32) return codec_->StartEncodeIntegers(Integers(value));
    const Direction direction = DirectionOf(edge);
    CodecSpec spec = SpecOf(edge, edge.gradient);
    if (IsExactBf16(spec, value.type)) {
      FUSIONLLM_ASSIGN_OR_RETURN(Pending message, codec_->StartEncodeBfloats(direction, {value.as<uint16_t>(), ElementsOf(value.type)}));
      if (edge.gradient || training) Count(edge, value.type, *message);
      return message;
    }
    FUSIONLLM_ASSIGN_OR_RETURN(const std::span<const float> floats, FloatsOf(edge, value));
    const EdgeId id = {edge.of, edge.peer};
    if (edge.gradient) {
      const Selection* const selection = SelectionOf(spec, id, slot);
      FUSIONLLM_ASSIGN_OR_RETURN(Pending message, codec_->StartEncode(spec, direction, floats, selection, nullptr, nullptr));
      Sent& sent = Count(edge, value.type, *message);
      return Compare(sent, spec, direction, floats, selection, std::move(message));
    }
    spec.error_feedback = spec.error_feedback && training;
    compression::SenderState& state = training ? senders_[id] : evaluators_[id];
    FUSIONLLM_ASSIGN_OR_RETURN(Pending message, codec_->StartEncode(spec, direction, floats, nullptr, &state, &selections_[{id, slot}]));
    if (!training) return message;
    Sent& sent = Count(edge, value.type, *message);
    return Compare(sent, spec, direction, floats, nullptr, std::move(message));
  }

  std::vector<float>* Residual(const CutEdge& edge) override {
    if (edge.gradient || !SpecOf(edge, false).error_feedback) return nullptr;
    const EdgeId id = {edge.of, edge.peer};
    return memory().on_host() ? &senders_[id].host.residual : &residuals_[id];
  }

  absl::Status PullResiduals() override {
    for (auto& [id, residual] : residuals_) {
      FUSIONLLM_RETURN_IF_ERROR(codec_->ReadResidual(senders_[id], &residual));
    }
    return absl::OkStatus();
  }

  absl::Status PushResiduals() override {
    for (const auto& [id, residual] : residuals_) {
      FUSIONLLM_RETURN_IF_ERROR(codec_->WriteResidual(residual, &senders_[id]));
    }
    return absl::OkStatus();
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
      return codec_->DecodeIntegers(payload, {out.as<int32_t>(), static_cast<size_t>(out.type.elements())});
    }
    const CodecSpec spec = SpecOf(edge, !edge.gradient);
    if (IsExactBf16(spec, out.type)) {
      return codec_->DecodeBfloats(DirectionOf(edge), payload, {out.as<uint16_t>(), ElementsOf(out.type)});
    }
    if (out.type.dtype == tensor::DType::kF32) return DecodeFloats(edge, slot, spec, payload, {out.f32(), ElementsOf(out.type)});
    if (out.type.dtype != tensor::DType::kBF16) return Unsupported(edge, out.type);
    FUSIONLLM_ASSIGN_OR_RETURN(const std::span<float> floats, RoomToWiden(ElementsOf(out.type)));
    FUSIONLLM_RETURN_IF_ERROR(DecodeFloats(edge, slot, spec, payload, floats));
    return codec_->Round(floats, {out.as<uint16_t>(), floats.size()});
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

  static Direction DirectionOf(const CutEdge& edge) { return edge.gradient ? Direction::kBackward : Direction::kForward; }
  static size_t ElementsOf(const tensor::TensorType& type) { return static_cast<size_t>(type.elements()); }
  static bool IsExactBf16(const CodecSpec& spec, const tensor::TensorType& type) {
    return type.dtype == tensor::DType::kBF16 && spec.kind == compression::CodecKind::kExact;
  }

  // Room where the tensors live; good until the next call.
  absl::StatusOr<std::span<float>> RoomToWiden(size_t elements) {
    const size_t bytes = elements * sizeof(float);
    if (widened_.size() < bytes) {
      widened_ = tensor::MemoryBlock();
      FUSIONLLM_ASSIGN_OR_RETURN(widened_, memory().Allocate(bytes));
    }
    return std::span<float>(reinterpret_cast<float*>(widened_.data()), elements);
  }

  // Good until the next call.
  absl::StatusOr<std::span<const float>> FloatsOf(const CutEdge& edge, const tensor::ConstTensorView& value) {
    const size_t elements = ElementsOf(value.type);
    if (value.type.dtype == tensor::DType::kF32) return std::span<const float>(value.f32(), elements);
    if (value.type.dtype != tensor::DType::kBF16) return Unsupported(edge, value.type);
    FUSIONLLM_ASSIGN_OR_RETURN(const std::span<float> floats, RoomToWiden(elements));
    FUSIONLLM_RETURN_IF_ERROR(codec_->Widen({value.as<uint16_t>(), elements}, floats));
    return std::span<const float>(floats);
  }

  absl::Status DecodeFloats(const CutEdge& edge, int slot, const CodecSpec& spec, const Payload& payload, std::span<float> floats) {
    const EdgeId id = {edge.of, edge.peer};
    if (edge.gradient) return codec_->Decode(Direction::kBackward, payload, SelectionOf(spec, id, slot), floats, nullptr);
    return codec_->Decode(Direction::kForward, payload, nullptr, floats, &selections_[{id, slot}]);
  }

  Sent& Count(const CutEdge& edge, const tensor::TensorType& type, const compression::PendingMessage& encoded) {
    Sent& sent = sent_.try_emplace({edge.peer, edge.of, edge.gradient}, comparison_period_).first->second;
    sent.dense_bytes += static_cast<int64_t>(type.bytes());
    sent.encoded_bytes += static_cast<int64_t>(encoded.size());
    return sent;
  }

  // Once in a while waits for the message and compares it.
  absl::StatusOr<Pending> Compare(Sent& sent, const CodecSpec& spec, Direction direction, std::span<const float> original,
                                  const Selection* selection, Pending message) {
    if (spec.kind == compression::CodecKind::kExact || !sent.sampler.Next()) return message;
    Payload encoded;
    FUSIONLLM_RETURN_IF_ERROR(message->Finish(&encoded));
    // What was encoded just now decodes; if it did not, the receiver would say so.
    if (const auto error = codec_->Compare(direction, original, encoded, selection); error.ok()) {
      sent.last = *error;
      ++sent.compared;
    }
    return compression::WholeMessage(std::move(encoded));
  }

  static std::span<const int32_t> Integers(tensor::ConstTensorView value) {
    return {value.as<int32_t>(), static_cast<size_t>(value.type.elements())};
  }

  static absl::Status Unsupported(const CutEdge& edge, const tensor::TensorType& type) {
    return absl::UnimplementedError(absl::StrFormat("value %d of type %s cannot cross a link", edge.value, type.ToString()));
  }

  // `from_peer`: the activation of the edge is the peer's.
  CodecSpec SpecOf(const CutEdge& edge, bool from_peer) const {
    const auto found = links_.find(from_peer ? std::pair(edge.peer, stage_) : std::pair(stage_, edge.peer));
    if (found == links_.end()) return compression::Exact();
    const auto value = static_cast<size_t>(edge.of);
    return value < kinds_.size() ? compression::AllowedCodec(found->second, kinds_[value]) : found->second;
  }

  // The forward message's choice, when the codec made one.
  const Selection* SelectionOf(const CodecSpec& spec, const EdgeId& id, int slot) const {
    if (spec.kind != compression::CodecKind::kTopK) return nullptr;
    const auto found = selections_.find({id, slot});
    return found == selections_.end() ? nullptr : &found->second;
  }

  const int stage_;
  const LinkCodecs links_;
  const std::vector<opdag::ActivationKind> kinds_;  // by value
  const int64_t comparison_period_;
  const std::unique_ptr<compression::TensorCodec> codec_;  // outlives what it filled
  std::map<EdgeId, compression::SenderState> senders_;
  std::map<EdgeId, compression::SenderState> evaluators_;
  std::map<EdgeId, std::vector<float>> residuals_;  // the host's copies, where tensors live on a device
  std::map<std::pair<EdgeId, int>, Selection> selections_;
  std::map<SentKey, Sent> sent_;
  tensor::MemoryBlock widened_;  // room for a bf16 tensor
};

}  // namespace

EdgeCodecs CompressedEdgeCodec(int stage, LinkCodecs links, int64_t comparison_period,
                               std::unique_ptr<compression::TensorCodec> tensor_codec, std::vector<opdag::ActivationKind> kinds) {
  if (tensor_codec == nullptr) tensor_codec = compression::HostTensorCodec();
  return std::make_unique<Compressed>(stage, std::move(links), comparison_period, std::move(tensor_codec), std::move(kinds));
}

std::unique_ptr<compression::TensorCodec> TensorCodecFor(kernels::Backend& backend) {
#ifdef FUSIONLLM_CUDA
  if (std::unique_ptr<compression::TensorCodec> codec = compression::cuda::TensorCodecOn(backend); codec != nullptr) return codec;
#endif
  return compression::HostTensorCodec();
}

}  // namespace fusionllm::runtime
