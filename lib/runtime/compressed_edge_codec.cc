#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"
#include "lib/base/status_macros.h"
#ifdef FUSIONLLM_CUDA
#include "lib/compression/cuda/codec.h"
#endif
#include "lib/compression/loss_divergence_detector.h"
#include "lib/compression/loss_prior.h"
#include "lib/compression/registry.h"
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
             std::vector<opdag::ActivationKind> kinds, GuardSettings guard)
      : stage_(stage),
        links_(std::move(links)),
        kinds_(std::move(kinds)),
        comparison_period_(comparison_period),
        codec_(std::move(codec)),
        guard_(std::move(guard)) {}

  tensor::Memory& memory() const override { return codec_->memory(); }

  absl::StatusOr<Payload> Encode(const CutEdge& edge, int slot, tensor::ConstTensorView value, bool training) override {
    FUSIONLLM_ASSIGN_OR_RETURN(const Pending message, StartEncode(edge, slot, value, training));
    Payload out;
    FUSIONLLM_RETURN_IF_ERROR(message->Finish(&out));
    return out;
  }

  absl::StatusOr<Pending> StartEncode(const CutEdge& edge, int slot, tensor::ConstTensorView value, bool training) override {
    if (value.type.dtype == tensor::DType::kI32) return codec_->StartEncodeIntegers(Integers(value));
    const bool counts = edge.gradient || training;
    Sent& sent = SentOver(edge);
    const CodecSpec spec = SpecOfNext(sent, edge, slot, training);
    if (IsExactBf16(spec, value.type)) {
      const std::span<const uint16_t> bfloats(value.as<uint16_t>(), ElementsOf(value.type));
      FUSIONLLM_ASSIGN_OR_RETURN(Pending message, codec_->StartEncodeBf16(DirectionOf(edge), bfloats));
      if (!edge.gradient) selections_.erase({{edge.of, edge.peer}, slot});
      if (counts) sent.Count(value.type.bytes(), message->size());
      return message;
    }
    FUSIONLLM_ASSIGN_OR_RETURN(const std::span<const float> floats, FloatsOf(edge, value));
    const EdgeId id = {edge.of, edge.peer};
    const Selection* const selection = edge.gradient ? SelectionOf(id, slot) : nullptr;
    compression::SenderState* const state = edge.gradient ? nullptr : training ? &senders_[id] : &evaluators_[id];
    FUSIONLLM_ASSIGN_OR_RETURN(Pending message, codec_->StartEncode(spec, DirectionOf(edge), floats, selection, state,
                                                                    edge.gradient ? nullptr : &selections_[{id, slot}]));
    if (!counts) return message;
    const size_t size = message->size();
    FUSIONLLM_ASSIGN_OR_RETURN(const bool fit, Compare(sent, edge, spec, value.type, floats, selection, message));
    if (!fit) {
      if (state != nullptr) *state = compression::SenderState();  // what another codec has kept back
      return StartEncode(edge, slot, value, training);
    }
    sent.Count(value.type.bytes(), size);
    return message;
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
      if (sent.dense_bytes == 0) continue;
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
    for (const auto& [peer, backoff] : backoffs_) links[peer].backoffs.push_back(backoff);
    return links;
  }

  absl::Status Decode(const CutEdge& edge, int slot, const Payload& payload, tensor::TensorView out) override {
    if (out.type.dtype == tensor::DType::kI32) {
      return codec_->DecodeIntegers(payload, {out.as<int32_t>(), static_cast<size_t>(out.type.elements())});
    }
    // What the sender sends may have changed since the plan was made: the message says what it is.
    FUSIONLLM_ASSIGN_OR_RETURN(const compression::MessageFormat form,
                               compression::MessageFormatOf(DirectionOf(edge), payload, ElementsOf(out.type)));
    if (!edge.gradient) received_[{{edge.of, edge.peer}, slot}] = form.spec;
    if (form.bfloats && out.type.dtype == tensor::DType::kBF16) {
      if (!edge.gradient) selections_.erase({{edge.of, edge.peer}, slot});
      return codec_->DecodeBf16(DirectionOf(edge), payload, {out.as<uint16_t>(), ElementsOf(out.type)});
    }
    if (out.type.dtype == tensor::DType::kF32) return DecodeFloats(edge, slot, payload, {out.f32(), ElementsOf(out.type)});
    if (out.type.dtype != tensor::DType::kBF16) return Unsupported(edge, out.type);
    FUSIONLLM_ASSIGN_OR_RETURN(const std::span<float> floats, RoomToWiden(ElementsOf(out.type)));
    FUSIONLLM_RETURN_IF_ERROR(DecodeFloats(edge, slot, payload, floats));
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
    explicit Sent(compression::ComparisonSampler sampler) : sampler(sampler) {}
    void Count(size_t dense, size_t encoded) {
      dense_bytes += static_cast<int64_t>(dense);
      encoded_bytes += static_cast<int64_t>(encoded);
    }
    compression::ComparisonSampler sampler;
    std::optional<CodecSpec> limit;  // that the guard has found
    bool warned = false;             // nothing more is to be said or done
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
    FUSIONLLM_RETURN_IF_ERROR(codec_->Upcast({value.as<uint16_t>(), elements}, floats));
    return std::span<const float>(floats);
  }

  absl::Status DecodeFloats(const CutEdge& edge, int slot, const Payload& payload, std::span<float> floats) {
    const EdgeId id = {edge.of, edge.peer};
    if (edge.gradient) return codec_->Decode(Direction::kBackward, payload, SelectionOf(id, slot), floats, nullptr);
    return codec_->Decode(Direction::kForward, payload, nullptr, floats, &selections_[{id, slot}]);
  }

  bool guards() const { return guard_.mode != compression::GuardMode::kNone; }

  compression::ComparisonSampler NewSampler() const {
    return compression::ComparisonSampler(comparison_period_, guards() ? kFirstComparisons : 1);
  }

  Sent& SentOver(const CutEdge& edge) {
    const auto [found, fresh] = sent_.try_emplace({edge.peer, edge.of, edge.gradient}, NewSampler());
    const auto known = guard_.limits.find({edge.of, edge.gradient});
    if (fresh && known != guard_.limits.end()) found->second.limit = known->second;
    return found->second;
  }

  // As the plan has it, no more aggressive than what was found or ordered since.
  CodecSpec SpecOfNext(const Sent& sent, const CutEdge& edge, int slot, bool training) const {
    std::vector<CodecSpec> limits;
    if (sent.limit.has_value()) limits.push_back(*sent.limit);
    if (guard_.limit != nullptr) {
      if (const auto ordered = guard_.limit->Get(); ordered.has_value()) limits.push_back(*ordered);
    }
    if (!edge.gradient) {
      CodecSpec spec = SpecOf(edge, false);
      for (const CodecSpec& limit : limits) spec = compression::LessAggressiveOf(spec, limit);
      spec.error_feedback = spec.error_feedback && training;
      return spec;
    }
    const auto answered = received_.find({{edge.of, edge.peer}, slot});
    CodecSpec spec = answered == received_.end() ? SpecOf(edge, true) : answered->second;
    spec.error_feedback = false;
    if (compression::IsSparse(spec.kind)) {  // under the mask whatever the limit: see codec.h
      const compression::CodecKind values = compression::FindValueCodec(compression::GradientValueKind(spec.top_k_values))->traits.kind;
      const bool halves = std::any_of(limits.begin(), limits.end(), [values](const CodecSpec& limit) {
        return compression::IsSparse(limit.kind) ? limit.top_k_values == compression::ValueKind::kFp16 : limit.kind < values;
      });
      if (halves) spec.top_k_values = compression::ValueKind::kFp16;
      return spec;
    }
    spec.kind = compression::GradientKind(spec.kind);
    for (const CodecSpec& limit : limits) spec = compression::LessAggressiveOf(spec, limit);
    return spec;
  }

  // Once in a while waits for the message and compares it. False: it is not to be sent, and the next is another.
  absl::StatusOr<bool> Compare(Sent& sent, const CutEdge& edge, const CodecSpec& spec, const tensor::TensorType& type,
                               std::span<const float> original, const Selection* selection, Pending& message) {
    if (spec.kind == compression::CodecKind::kExact || !sent.sampler.Next()) return true;
    Payload encoded;
    FUSIONLLM_RETURN_IF_ERROR(message->Finish(&encoded));
    // What was encoded just now decodes; if it did not, the receiver would say so.
    const auto error = codec_->Compare(DirectionOf(edge), original, encoded, selection);
    message = compression::CompletedMessage(std::move(encoded));
    if (!error.ok()) return true;
    const bool tolerable = !guards() || sent.warned || !(error->relative_error > LimitOf(edge, spec));
    if (!tolerable) {
      FUSIONLLM_ASSIGN_OR_RETURN(const bool backs_off, BackOff(sent, edge, spec, type, *error, original, selection));
      if (backs_off) return false;
    }
    sent.last = *error;
    ++sent.compared;
    return true;
  }

  opdag::ActivationKind KindOf(const CutEdge& edge) const {
    return static_cast<size_t>(edge.of) < guard_.kinds.size() ? guard_.kinds[edge.of] : opdag::ActivationKind::kHidden;
  }
  double LimitOf(const CutEdge& edge, const CodecSpec& spec) const {
    const auto found = guard_.link_losses.find(LinkOf(edge, edge.gradient));
    const double nats = found == guard_.link_losses.end() ? compression::kGuardLossBudget : found->second;
    return compression::MaxRelativeError(spec, KindOf(edge), DirectionOf(edge), nats);
  }

  // Finds the smallest message of this tensor that loses little enough. False: all that was to be done was to tell.
  absl::StatusOr<bool> BackOff(Sent& sent, const CutEdge& edge, const CodecSpec& spec, const tensor::TensorType& type,
                               const compression::CompressionError& error, std::span<const float> original, const Selection* selection) {
    CodecBackoff found = {.of = edge.of,
                          .gradient = edge.gradient,
                          .kind = KindOf(edge),
                          .from = spec,
                          .to = spec,
                          .relative_error = error.relative_error,
                          .cosine = error.cosine,
                          .limit = LimitOf(edge, spec),
                          .remaining_error = error.relative_error};
    if (guard_.mode == compression::GuardMode::kAuto) {
      for (const CodecSpec& codec : compression::LessAggressiveCodecs(spec, DirectionOf(edge))) {
        // An exact message of a bf16 tensor is no larger.
        const bool as_wide = type.dtype == tensor::DType::kBF16 && codec.kind != compression::CodecKind::kExact &&
                             compression::CodecOf(codec.kind).traits.bits_per_value >= 16;
        if (as_wide) continue;
        FUSIONLLM_ASSIGN_OR_RETURN(const double remaining, ErrorOf(codec, edge, original, selection));
        found.to = codec;
        found.remaining_error = remaining;
        if (remaining <= compression::kBackoffMargin * LimitOf(edge, codec)) break;
      }
    }
    backoffs_.emplace_back(edge.peer, found);
    if (found.to == spec) {
      sent.warned = true;
      return false;
    }
    sent.limit = found.to;
    sent.sampler = NewSampler();
    return true;
  }

  absl::StatusOr<double> ErrorOf(CodecSpec codec, const CutEdge& edge, std::span<const float> original, const Selection* selection) {
    if (codec.kind == compression::CodecKind::kExact) return 0;
    codec.error_feedback = false;
    Selection unused;
    FUSIONLLM_ASSIGN_OR_RETURN(const Pending message, codec_->StartEncode(codec, DirectionOf(edge), original, selection, nullptr,
                                                                          edge.gradient ? nullptr : &unused));
    Payload encoded;
    FUSIONLLM_RETURN_IF_ERROR(message->Finish(&encoded));
    FUSIONLLM_ASSIGN_OR_RETURN(const compression::CompressionError error, codec_->Compare(DirectionOf(edge), original, encoded, selection));
    return error.relative_error;
  }

  static std::span<const int32_t> Integers(tensor::ConstTensorView value) {
    return {value.as<int32_t>(), static_cast<size_t>(value.type.elements())};
  }

  static absl::Status Unsupported(const CutEdge& edge, const tensor::TensorType& type) {
    return absl::UnimplementedError(absl::StrFormat("value %d of type %s cannot cross a link", edge.value, type.ToString()));
  }

  // `from_peer`: the activation of the edge is the peer's.
  std::pair<int, int> LinkOf(const CutEdge& edge, bool from_peer) const {
    return from_peer ? std::pair(edge.peer, stage_) : std::pair(stage_, edge.peer);
  }

  CodecSpec SpecOf(const CutEdge& edge, bool from_peer) const {
    const auto found = links_.find(LinkOf(edge, from_peer));
    if (found == links_.end()) return compression::Exact();
    const auto value = static_cast<size_t>(edge.of);
    return value < kinds_.size() ? compression::AllowedCodec(found->second, kinds_[value]) : found->second;
  }

  // The forward message's choice, when the codec made one.
  const Selection* SelectionOf(const EdgeId& id, int slot) const {
    const auto found = selections_.find({id, slot});
    if (found == selections_.end() || (found->second.mask.dense() && found->second.elements == 0)) return nullptr;
    return &found->second;
  }

  const int stage_;
  const LinkCodecs links_;
  const std::vector<opdag::ActivationKind> kinds_;  // by value
  const int64_t comparison_period_;
  const std::unique_ptr<compression::TensorCodec> codec_;  // outlives what it filled
  const GuardSettings guard_;
  std::map<EdgeId, compression::SenderState> senders_;
  std::map<EdgeId, compression::SenderState> evaluators_;
  std::map<EdgeId, std::vector<float>> residuals_;  // the host's copies, where tensors live on a device
  std::map<std::pair<EdgeId, int>, Selection> selections_;
  std::map<std::pair<EdgeId, int>, CodecSpec> received_;  // what forward messages were, by slot
  std::map<SentKey, Sent> sent_;
  std::vector<std::pair<int, CodecBackoff>> backoffs_;  // by peer, in their order
  tensor::MemoryBlock widened_;                         // room for a bf16 tensor
};

}  // namespace

EdgeCodecPtr CompressedEdgeCodec(int stage, LinkCodecs links, int64_t comparison_period,
                                 std::unique_ptr<compression::TensorCodec> tensor_codec, std::vector<opdag::ActivationKind> kinds,
                                 GuardSettings guard) {
  if (tensor_codec == nullptr) tensor_codec = compression::HostTensorCodec();
  return std::make_unique<Compressed>(stage, std::move(links), comparison_period, std::move(tensor_codec), std::move(kinds),
                                      std::move(guard));
}

std::unique_ptr<compression::TensorCodec> TensorCodecFor(kernels::Backend& backend) {
#ifdef FUSIONLLM_CUDA
  if (std::unique_ptr<compression::TensorCodec> codec = compression::cuda::TensorCodecOn(backend); codec != nullptr) return codec;
#endif
  return compression::HostTensorCodec();
}

}  // namespace fusionllm::runtime
