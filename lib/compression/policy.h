// Chooses the codec of each link: the least aggressive that hides the link behind compute, never more than the job allows.
//
// Pure functions over plain estimates: no clock, no I/O, thread-safe. Limits: kMaxLinks links, kMaxTensorsPerLink tensors a link.
//
// Time of a link for one micro-batch and direction: latency + bytes / bandwidth, with the bytes that the encoder really makes. A direction
// is hidden when its bytes / bandwidth do not exceed the target: latency fills a pipeline but does not limit a steady one. Forward and
// backward travel on different directed links and are judged one by one. Where several stage pairs share one physical link, pass the
// share of the bandwidth that this pair has.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/compression/loss_prior.h"
#include "lib/compression/spec.h"
#include "lib/opdag/activation_kind.h"

namespace fusionllm::compression {

inline constexpr size_t kMaxLinks = 100'000;
inline constexpr size_t kMaxTensorsPerLink = 10'000;

enum class PolicyKind : uint8_t {
  kNone,     // fp32 everywhere
  kUniform,  // one codec for every link
  kAdaTopK,  // each link by its own share of the time
};

// spec.compression of a job.
struct Policy {
  PolicyKind kind = PolicyKind::kNone;
  // The codec that links use when they need one; none: "auto", the levels below. With kUniform and auto, the least aggressive that hides
  // every link.
  std::optional<CodecKind> codec;
  // Of the levels: none beyond this kind; none: all of it.
  std::optional<CodecKind> limit;
  // Top-k: size / kept. The most that any link may use: exactly this with kUniform and kTopK, at most this otherwise. 1 (no top-k on
  // the levels) to kMaxTopKRatio. It says nothing about the other codecs.
  double max_ratio = 100;
  // What top-k's kept values travel as; none: int8, but int4 where kAdaTopK has a link that carries inner residuals alone, which lose
  // nothing more by it.
  std::optional<ValueKind> top_k_values;
  bool error_feedback = false;
  // The most that all links together may be expected to cost, in nats per target, where the policy has a choice: kAdaTopK, and kUniform
  // with auto. A codec that kUniform names is used whatever it costs.
  double max_loss_increase = std::numeric_limits<double>::infinity();
  double reserved_loss = 0;  // of max_loss_increase, what links leave to others: gradients of tied parameters
  double LinkLossBudget() const { return max_loss_increase - reserved_loss; }
  // Of the levels the last that a link may have.
  CodecKind LastLevel() const { return codec.value_or(limit.value_or(CodecKind::kTopK)); }
  int64_t training_steps = 0;  // of the whole job, for what a codec is expected to cost; 0: unknown, the most of any length
};

// A float activation that crosses the cut, and its gradient on the way back.
struct CutTensor {
  int64_t elements = 0;  // per micro-batch
  bool has_gradient = true;
  int64_t bytes_of_element = 4;  // where it lies: 4, or 2 of a bf16 tensor
  opdag::ActivationKind kind = opdag::ActivationKind::kHidden;
};

// Both directions between two stages, for one micro-batch.
struct LinkLoad {
  std::string name;  // for the reasons, as "paris-0 -> tokyo-1"
  std::vector<CutTensor> tensors;
  int64_t lossless_bytes = 0;                 // labels, tokens and masks: forward, never compressed with loss
  double forward_bandwidth_bytes_per_s = 0;   // > 0
  double backward_bandwidth_bytes_per_s = 0;  // > 0
  double forward_latency_s = 0;               // >= 0
  double backward_latency_s = 0;              // >= 0
};

struct LinkChoice {
  CodecSpec spec;
  int64_t forward_bytes = 0, backward_bytes = 0;  // per micro-batch, with headers and lossless bytes
  double needed_ratio = 1;                        // AdaTopKRatio of the direction that needs more, without an upper limit
  double ratio = 1;                               // dense bytes, of the tensors as they lie, over these bytes, both directions
  double forward_s = 0, backward_s = 0;           // latency + bytes / bandwidth
  double busy_s = 0;                              // the greater bytes / bandwidth of the two: what may limit the pipeline
  bool hidden = false;                            // busy_s <= target
  double expected_loss_increase = 0;              // nats per target: of the tensor that costs most, ExpectedLossIncrease
  // True where a trained bottleneck at the cut is expected to cost less loss at this ratio (docs/design/codec-limits.md).
  bool bottleneck_layer_is_better = false;
  std::string reason_code;  // PolicyNone, NothingToCompress, Uniform, Hidden, HiddenByCompression, RatioLimit, CodecLimit,
                            // LossInputLimit, LossBudgetLimit
  std::string reason;       // one sentence
};

// AdaTopK: r_l = clamp(bytes / (bandwidth · target), 1, max_ratio), what hides a link and never more (formula ours; target: the largest
// stage time). The wire ratio that a direction needs; the element ratio of a top-k codec follows from real encoded bytes.
double AdaTopKRatio(int64_t bytes, double bandwidth_bytes_per_s, double target_s, double max_ratio);

// What a codec costs on a link, in training of so many steps. The reason fields stay empty. Preconditions as checked by ChooseCodecs.
LinkChoice EstimateLink(const CodecSpec& spec, const LinkLoad& load, double target_s, int64_t training_steps = 0);

// One choice for each link, in order. target_s > 0: the largest stage time per micro-batch.
//
// The levels of auto: fp32 -> fp16 -> int8 -> int4 (gradient int8), the automatic ones of the registry -> top-k with the least ratio that
// hides the link, at most max_ratio. A link that nothing hides gets the fastest level it may use (RatioLimit). Where the links together
// would cost more than max_loss_increase, all begin without loss, and whichever is slowest takes the cheapest codec that makes it faster,
// until it is hidden or the budget does not allow the next one: the others then have what hides them behind that link (LossBudgetLimit).
//
// Errors: InvalidArgument names link and field.
absl::StatusOr<std::vector<LinkChoice>> ChooseCodecs(const Policy& policy, std::span<const LinkLoad> links, double target_s);

// The greatest top-k ratio that any link may be given: max_ratio, or what alone spends the budget of loss on the kind of value that bears
// it best (rounded up); 1 where that is none.
double MaxTopKRatio(const Policy& policy);

}  // namespace fusionllm::compression
