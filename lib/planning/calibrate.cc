#include "lib/planning/calibrate.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "lib/base/philox.h"
#include "lib/base/status_macros.h"
#include "lib/compression/codec.h"
#include "lib/compression/registry.h"
#include "lib/planning/cost_models.h"
#include "lib/planning/micro_batch_sizes.h"
#include "lib/planning/op_measurement.h"
#include "lib/planning/synthetic_data.h"
#include "lib/runtime/device_throttle.h"
#include "lib/runtime/edge_codec.h"

namespace fusionllm::planning {
namespace {

// Elements of the tensor on which codecs are timed; how long and how often.
constexpr int64_t kSampleElements = int64_t{1} << 19;
constexpr double kSecondsOfRuns = 0.03;
constexpr int kMinTimedRuns = 3, kMaxTimedRuns = 100;
// The second size is there for the rates alone.
constexpr double kShareOfSecondSize = 0.25;

class Timer {
 public:
  Timer(bool thread_cpu, double seconds) : thread_cpu_(thread_cpu), seconds_(seconds) {}

  template <typename Run>
  absl::StatusOr<double> Seconds(Run run) const {
    const int64_t begin = Now();
    FUSIONLLM_RETURN_IF_ERROR(run());
    return static_cast<double>(Now() - begin) * 1e-9;
  }

  // The least seconds of `run` over enough repetitions.
  template <typename Run>
  absl::StatusOr<double> MinSeconds(Run run) const {
    double least = std::numeric_limits<double>::infinity();
    double spent = 0;
    for (int i = 0; i < kMaxTimedRuns && (i < kMinTimedRuns || spent < seconds_); ++i) {
      FUSIONLLM_ASSIGN_OR_RETURN(const double seconds, Seconds(run));
      least = std::min(least, seconds);
      spent += seconds;
    }
    return least;
  }

 private:
  int64_t Now() const { return thread_cpu_ ? runtime::ThreadCpuNanoseconds() : runtime::MonotonicNanoseconds(); }
  const bool thread_cpu_;
  const double seconds_;
};

// Seconds to encode and to decode.
struct CodingSeconds {
  double encode = 0, decode = 0;
};

// Of a large tensor, for each value.
absl::StatusOr<CodingSeconds> ValueSeconds(const compression::CodecSpec& spec, const Timer& timer) {
  using compression::Direction;
  std::vector<float> values(kSampleElements), decoded(kSampleElements);
  const base::CounterRng rng(1, "calibration");
  for (int64_t i = 0; i < kSampleElements; ++i) values[i] = rng.Normal(i);
  compression::EncoderState state;
  compression::Mask mask;
  std::vector<std::byte> message;
  CodingSeconds seconds;
  FUSIONLLM_ASSIGN_OR_RETURN(seconds.encode, timer.MinSeconds([&] {
    return compression::Encode(spec, Direction::kForward, values, nullptr, &state, &message, &mask);
  }));
  FUSIONLLM_ASSIGN_OR_RETURN(seconds.decode, timer.MinSeconds([&] {
    return compression::Decode(Direction::kForward, message, nullptr, std::span<float>(decoded), &mask);
  }));
  seconds.encode /= kSampleElements;
  seconds.decode /= kSampleElements;
  return seconds;
}

// Median seconds of a message of 64 values. The caches are overwritten before each, as ops do between messages.
absl::StatusOr<CodingSeconds> MessageSeconds(const compression::CodecSpec& spec, const Timer& timer) {
  constexpr int kRuns = 50;
  constexpr int64_t kElements = 64;
  constexpr size_t kCacheBytes = size_t{1} << 20;
  const runtime::LinkCodecs link = {{{0, 1}, spec}};
  const runtime::EdgeCodecPtr sender = runtime::CompressedEdgeCodec(0, link), receiver = runtime::CompressedEdgeCodec(1, link);
  const runtime::CutEdge to = {.value = 0, .peer = 1, .of = 0}, from = {.value = 0, .peer = 0, .of = 0};
  tensor::Buffer value(kElements * sizeof(float)), decoded(kElements * sizeof(float));
  const tensor::TensorType type = {tensor::DType::kF32, {kElements}};
  const base::CounterRng rng(1, "calibration");
  for (int64_t i = 0; i < kElements; ++i) reinterpret_cast<float*>(value.data())[i] = rng.Normal(i);
  std::vector<char> cache(kCacheBytes);
  const auto use_caches = [&] {
    for (char& byte : cache) ++byte;
  };
  std::vector<double> encode, decode;
  for (int i = 0; i < kRuns; ++i) {
    use_caches();
    runtime::Payload payload;
    FUSIONLLM_ASSIGN_OR_RETURN(encode.emplace_back(), timer.Seconds([&]() -> absl::Status {
      FUSIONLLM_ASSIGN_OR_RETURN(payload, sender->Encode(to, 0, {type, value.data()}, /*training=*/false));
      return absl::OkStatus();
    }));
    use_caches();
    FUSIONLLM_ASSIGN_OR_RETURN(decode.emplace_back(), timer.Seconds([&] {
      return receiver->Decode(from, 0, payload, {type, decoded.data()});
    }));
  }
  for (std::vector<double>* seconds : {&encode, &decode}) std::nth_element(seconds->begin(), seconds->begin() + kRuns / 2, seconds->end());
  return CodingSeconds{.encode = encode[kRuns / 2], .decode = decode[kRuns / 2]};
}

absl::StatusOr<wire::CodecProfile> MeasureCodec(compression::CodecKind kind, const Timer& timer) {
  const bool selects = compression::IsSparse(kind);
  constexpr double kLowRatio = 2, kHighRatio = 20;
  const compression::CodecSpec spec = selects ? compression::TopK(kHighRatio) : compression::CodecSpec{.kind = kind};
  FUSIONLLM_ASSIGN_OR_RETURN(const CodingSeconds message, MessageSeconds(spec, timer));
  FUSIONLLM_ASSIGN_OR_RETURN(const CodingSeconds value, ValueSeconds(spec, timer));
  wire::CodecProfile profile{.encode_seconds = value.encode,
                             .decode_seconds = value.decode,
                             .encode_message_seconds = message.encode,
                             .decode_message_seconds = message.decode};
  if (!selects) return profile;
  // Seconds a value = value_s + kept_s / ratio: two ratios give both.
  FUSIONLLM_ASSIGN_OR_RETURN(const CodingSeconds low, ValueSeconds(compression::TopK(kLowRatio), timer));
  const TopKSeconds encode = FitTopK(kLowRatio, low.encode, kHighRatio, value.encode),
                    decode = FitTopK(kLowRatio, low.decode, kHighRatio, value.decode);
  profile.encode_seconds = encode.value_s;
  profile.encode_kept_seconds = encode.kept_s;
  profile.decode_seconds = decode.value_s;
  profile.decode_kept_seconds = decode.kept_s;
  return profile;
}

// What the largest size may take of the memory of one tensor.
constexpr int64_t kMaxValueBytes = int64_t{1} << 30;

// For a job that leaves the micro-batch size to the planner: the largest that it may choose, as far as measuring it takes no longer than
// `seconds`. `seconds_of_ops`: of the workload's own size. 0: none.
int64_t LargestSize(const workload::Workload& workload, double seconds_of_ops, int passes, double seconds) {
  if (workload.job.spec.training.micro_batch_size > 0) return 0;
  int64_t largest_value = 1;
  for (const opdag::Value& value : workload.training.graph.values()) {
    largest_value = std::max(largest_value, static_cast<int64_t>(value.type.bytes()));
  }
  const auto own = static_cast<double>(workload.micro_batch_size);
  int64_t largest = 0;
  for (const int64_t size : MicroBatchSizes(workload).calibrated()) {
    const double times = static_cast<double>(size) / own;
    if (times * seconds_of_ops * passes > seconds || times * static_cast<double>(largest_value) > kMaxValueBytes) continue;
    if (size > workload.micro_batch_size) largest = size;
  }
  return largest;
}

// The job with another micro-batch, so that the rates of a class rest on ops of more than one size: the smallest, which is measured
// soonest.
absl::StatusOr<std::unique_ptr<workload::Workload>> OtherSize(const workload::Workload& workload) {
  job::FusionJob job = workload.job;
  job.spec.training.micro_batch_size = workload.micro_batch_size == 1 ? 2 : 1;
  if (workload.micro_batch_size == 1 && job.spec.training.global_batch_size % 2 != 0) job.spec.training.global_batch_size *= 2;
  return workload::Resolve(job, workload.base_directory);
}

}  // namespace

CalibrationOptions ForEmulatedDevices(CalibrationOptions options) {
  constexpr int kMaxPasses = 1000;
  constexpr double kSeconds = 1.6;  // of a shared machine that is slow for a second now and then
  constexpr int kInFlight = 4;
  options.quantile = runtime::kUncontendedQuantile;
  options.in_flight = kInFlight;
  options.max_passes = kMaxPasses;
  options.seconds = std::min(options.seconds, kSeconds);
  return options;
}

absl::StatusOr<wire::DeviceProfile> Calibrate(const workload::Workload& workload, kernels::Backend& backend,
                                              const CalibrationOptions& options) {
  wire::DeviceProfile profile{.backend = std::string(backend.name()), .threads = options.threads};
  runtime::MeasureOptions measure{.min_micro_batches = options.min_passes,
                                  .max_micro_batches = options.max_passes,
                                  .seconds = options.seconds,
                                  .timeout_s = options.timeout_s,
                                  .quantile = options.quantile,
                                  .thread_cpu = options.threads == 1,
                                  .cancelled = options.cancelled};
  const runtime::StageConfig config = workload::StageConfigOf(workload);
  SyntheticData stand_in(workload.training.graph);
  runtime::BatchSource& data = options.data == nullptr ? stand_in : *options.data;
  FUSIONLLM_ASSIGN_OR_RETURN(OpMeasurements measured, MeasureGraph(workload.training, config, backend, data, measure, options.in_flight,
                                                                   kSliceBytes, options.memory_bytes));
  double seconds_of_ops = 0;
  for (const auto& [signature, op] : measured.ops) seconds_of_ops += op.seconds;
  profile.ops = std::move(measured.ops);
  profile.update_seconds_per_element = measured.update_seconds_per_element;
  if (options.data != nullptr) {
    profile.data_seconds_per_byte[std::string(job::ToString(workload.job.spec.data.kind))] = measured.data_seconds_per_byte;
  }

  // A graph of the user may be written for one size alone. A larger one than the job's is left out where it would take long: large graphs
  // have ops of more than one size in them.
  const auto takes_long = [&](const workload::Workload& other) {
    return other.micro_batch_size > workload.micro_batch_size && seconds_of_ops > options.seconds;
  };
  measure.seconds *= kShareOfSecondSize;
  if (const auto other = OtherSize(workload); other.ok() && !takes_long(**other)) {
    SyntheticData other_data((*other)->training.graph);
    absl::StatusOr<OpMeasurements> more =
        MeasureGraph((*other)->training, config, backend, other_data, measure, options.in_flight, kSliceBytes, options.memory_bytes);
    if (!more.ok() && !tensor::IsOutOfMemory(more.status())) return more.status();
    if (more.ok()) profile.ops.merge(std::move(more->ops));
  }
  if (const int64_t size = LargestSize(workload, seconds_of_ops, options.min_passes, options.seconds); size > 0) {
    job::FusionJob job = workload.job;
    job.spec.training.micro_batch_size = size;
    if (const auto large = workload::Resolve(job, workload.base_directory); large.ok()) {
      SyntheticData large_data((*large)->training.graph);
      const absl::StatusOr<OpMeasurements> more = MeasureGraph((*large)->training, workload::StageConfigOf(**large), backend, large_data,
                                                               measure, options.in_flight, kSliceBytes, options.memory_bytes);
      // Memory may not do for it: then no plan is made for it either.
      if (!more.ok() && !absl::IsResourceExhausted(more.status())) return more.status();
      if (more.ok()) profile.ops.insert(more->ops.begin(), more->ops.end());
    }
  }
  FUSIONLLM_ASSIGN_OR_RETURN(profile.rates, RatesOf(profile.ops));

  const Timer timer(measure.thread_cpu, std::min(kSecondsOfRuns, options.seconds));
  for (const compression::Codec* codec : compression::Codecs()) {
    if (options.cancelled && options.cancelled()) return absl::CancelledError("calibration was cancelled");
    FUSIONLLM_ASSIGN_OR_RETURN(profile.codecs[codec->traits.name], MeasureCodec(codec->traits.kind, timer));
  }
  return profile;
}

TopKSeconds FitTopK(double low_ratio, double low_s, double high_ratio, double high_s) {
  const double kept_s = std::clamp((low_s - high_s) / (1 / low_ratio - 1 / high_ratio), 0.0, high_s * high_ratio);
  return {.value_s = std::max(0.0, high_s - kept_s / high_ratio), .kept_s = kept_s};  // which rounding may take below zero
}

}  // namespace fusionllm::planning
