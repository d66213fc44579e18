#include "lib/planning/codec_adapter.h"

#include <algorithm>
#include <memory>

#include "lib/compression/registry.h"

namespace fusionllm::planning {
namespace {

using compression::CodecKind;

constexpr size_t kMaxCachedResults = 50'000;
constexpr double kMinTargetSeconds = 1e-9;  // a graph that costs nothing still needs a positive target
constexpr double kMinRate = 1e-3;

int64_t ElementsOf(const scheduler::LossyTensor& tensor) { return tensor.bytes / tensor.bytes_of_element; }

compression::LinkLoad LoadOf(const scheduler::LinkTraffic& traffic) {
  compression::LinkLoad load{.name = "link",
                             .lossless_bytes = traffic.forward_lossless_bytes,
                             .forward_bandwidth_bytes_per_s = std::max(kMinRate, traffic.forward_bytes_per_s),
                             .backward_bandwidth_bytes_per_s = std::max(kMinRate, traffic.backward_bytes_per_s),
                             .forward_latency_s = traffic.forward_latency_s,
                             .backward_latency_s = traffic.backward_latency_s};
  for (const scheduler::LossyTensor& tensor : traffic.lossy_tensors) {
    load.tensors.push_back({.elements = ElementsOf(tensor), .bytes_of_element = tensor.bytes_of_element, .kind = tensor.kind});
  }
  return load;
}

}  // namespace

compression::Policy PolicyOf(const job::Spec& spec) {
  using compression::PolicyKind;
  const job::Compression& compression = spec.compression;
  compression::Policy policy{.max_ratio = compression.ratio,
                             .error_feedback = compression.error_feedback,
                             .max_loss_increase = compression.max_loss_increase,
                             .training_steps = spec.training.steps};
  policy.codec = compression.codec.kind;
  policy.limit = compression.limit.kind;
  policy.top_k_values = compression.topk_values.kind;
  if (compression.policy == job::CompressionPolicy::kUniform) policy.kind = PolicyKind::kUniform;
  if (compression.policy == job::CompressionPolicy::kAdatopk) policy.kind = PolicyKind::kAdaTopK;
  return policy;
}

CompressionPolicy::MessageSeconds CompressionPolicy::SecondsOf(const compression::CodecSpec& spec, int64_t elements) const {
  const auto found = codecs_.find(std::string(compression::Name(spec.kind)));
  if (found == codecs_.end()) return {};
  const wire::CodecProfile& profile = found->second;
  const auto values = static_cast<double>(elements);
  const double kept = compression::IsSparse(spec.kind) ? static_cast<double>(compression::KeptElements(spec.ratio, elements)) : 0;
  return {.encode = profile.encode_message_seconds + values * profile.encode_seconds + kept * profile.encode_kept_seconds,
          .decode = profile.decode_message_seconds + values * profile.decode_seconds + kept * profile.decode_kept_seconds};
}

scheduler::LinkCodec CompressionPolicy::Describe(const scheduler::LinkTraffic& traffic, const compression::LinkChoice& choice) const {
  scheduler::LinkCodec codec{.codec = compression::ToString(choice.spec),
                             .forward_wire_bytes = choice.forward_bytes,
                             .backward_wire_bytes = choice.backward_bytes,
                             .loss_cost = choice.expected_loss_increase};
  if (!choice.reason.empty()) codec.reason = std::make_shared<const std::string>(choice.reason);
  const auto lossy_wire = static_cast<double>(choice.forward_bytes - traffic.forward_lossless_bytes + choice.backward_bytes);
  if (lossy_wire > 0) codec.ratio = std::max(1.0, static_cast<double>(traffic.forward_bytes + traffic.backward_bytes) / lossy_wire);
  for (const scheduler::LossyTensor& tensor : traffic.lossy_tensors) {
    const compression::CodecSpec spec = compression::AllowedCodec(choice.spec, tensor.kind);
    compression::CodecSpec gradient = spec;
    gradient.kind = compression::GradientKind(spec.kind);
    const int64_t elements = ElementsOf(tensor);  // each way
    const MessageSeconds there = SecondsOf(spec, elements), back = SecondsOf(gradient, elements);
    codec.producer_forward_s += there.encode;
    codec.consumer_forward_s += there.decode;
    // The gradient of a top-k edge is gathered by the forward's mask, which costs about what scattering does; nothing is selected.
    codec.consumer_backward_s += compression::IsSparse(spec.kind) ? back.decode : back.encode;
    codec.producer_backward_s += back.decode;
  }
  if (traffic.forward_lossless_bytes > 0) {
    const MessageSeconds ids = SecondsOf(compression::Exact(), 0);
    codec.producer_forward_s += ids.encode;
    codec.consumer_forward_s += ids.decode;
  }
  return codec;
}

std::vector<scheduler::LinkCodec> CompressionPolicy::Price(std::span<const scheduler::LinkTraffic> links, double target_s) const {
  std::vector<compression::LinkLoad> loads;
  for (const scheduler::LinkTraffic& traffic : links) loads.push_back(LoadOf(traffic));
  const auto choices = compression::ChooseCodecs(policy_, loads, std::max(kMinTargetSeconds, target_s));
  std::vector<scheduler::LinkCodec> codecs;
  for (size_t i = 0; i < links.size(); ++i) {
    // A validated request is within every limit but the size of one tensor, which no codec then takes: such links are sent as they are.
    const compression::LinkChoice exact{.forward_bytes = links[i].forward_bytes + links[i].forward_lossless_bytes,
                                        .backward_bytes = links[i].backward_bytes};
    codecs.push_back(Describe(links[i], choices.ok() ? (*choices)[i] : exact));
  }
  return codecs;
}

void CompressionPolicy::Choose(std::span<const scheduler::LinkTraffic> links, double target_s,
                               std::span<scheduler::LinkCodec> codecs) const {
  Key key{target_s};
  for (const scheduler::LinkTraffic& traffic : links) {
    for (const scheduler::LossyTensor& tensor : traffic.lossy_tensors) {
      key.insert(key.end(),
                 {static_cast<double>(tensor.bytes), static_cast<double>(tensor.bytes_of_element), static_cast<double>(tensor.kind)});
    }
    key.insert(key.end(),
               {-1, static_cast<double>(traffic.forward_lossless_bytes), traffic.forward_bytes_per_s, traffic.backward_bytes_per_s});
  }
  const base::MutexLock lock(mutex_);
  auto found = remembered_.find(key);
  if (found == remembered_.end()) {
    if (remembered_.size() >= kMaxCachedResults) remembered_.clear();
    found = remembered_.emplace(std::move(key), Price(links, target_s)).first;
  }
  std::copy(found->second.begin(), found->second.end(), codecs.begin());
}

namespace {

// Of kept values, unless the job names them: for bounds, so uniform, which takes int8, may shrink links by less.
compression::ValueKind FewestBits() {
  const compression::CodecTraits* fewest = nullptr;
  for (const compression::Codec* codec : compression::Codecs()) {
    const compression::CodecTraits& traits = codec->traits;
    if (traits.values.has_value() && (fewest == nullptr || traits.bits_per_value < fewest->bits_per_value)) fewest = &traits;
  }
  return *fewest->values;
}

}  // namespace

double CompressionPolicy::MaxRatio() const {
  if (policy_.kind == compression::PolicyKind::kNone) return 1;
  constexpr int64_t kSample = 1'000'000;
  double most = 1;
  for (const compression::Codec* codec : compression::Codecs()) {
    const CodecKind kind = codec->traits.kind;
    // The job's ratio bounds top-k alone: below it in the order of levels lies int4.
    const bool level = !policy_.codec.has_value() && codec->traits.automatic && kind < policy_.LastLevel();
    if (!level && kind != policy_.LastLevel()) continue;
    const double ratio = compression::IsSparse(kind) ? compression::MaxTopKRatio(policy_) : 1;
    const compression::ValueKind values = policy_.top_k_values.value_or(FewestBits());
    most = std::max(most, compression::WireRatio({.kind = kind, .ratio = ratio, .top_k_values = values}, kSample));
  }
  return most;
}

double CompressionPolicy::MaxDirectionRatio() const {
  if (policy_.kind == compression::PolicyKind::kNone) return 1;
  // Whole blocks, and the header left out: no number of elements is encoded in fewer bytes each.
  constexpr int64_t kSample = int64_t{1} << 16;
  constexpr int64_t kMaxBytesPerElement = 4;
  const double most_selective = compression::MaxTopKRatio(policy_);
  double most = 1;
  for (const compression::Codec* codec : compression::Codecs()) {
    const CodecKind kind = codec->traits.kind;
    if (policy_.codec.has_value() && *policy_.codec != kind) continue;
    // Of top-k the values alone, kept one in so many; gradients go without the mask.
    const compression::CodecSpec spec{.kind = kind, .top_k_values = policy_.top_k_values.value_or(FewestBits())};
    const double kept = compression::IsSparse(kind) ? most_selective : 1;
    for (const auto direction : {compression::Direction::kForward, compression::Direction::kBackward}) {
      const auto bytes = static_cast<double>(compression::EncodedBytes(spec, kSample, direction) - compression::kHeaderBytes);
      most = std::max(most, kept * kMaxBytesPerElement * kSample / bytes);
    }
  }
  return most;
}

}  // namespace fusionllm::planning
