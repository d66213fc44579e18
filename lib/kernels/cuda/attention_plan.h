// What computes attention of bf16 tensors on the device: cuDNN where there is one that is faster, else kernels of our own on tensor cores.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/kernels/backend.h"
#include "lib/kernels/cuda/device.h"
#include "lib/kernels/prepared_op.h"

namespace fusionllm::kernels::cuda {

enum class AttentionPass {
  kForward,   // qkv -> y, lse
  kBackward,  // qkv, y, lse, dy -> dqkv
};

// qkv and dqkv are [batch, length, 3, heads, size] in bf16, y and dy [batch, length, heads, size], lse [batch, heads, length] in fp32
// (natural logarithms of the sums of exponentials). Scores are scaled by 1 / sqrt(size).
struct AttentionSpec {
  AttentionPass pass;
  int64_t batch, length, heads, size;
  bool causal;
  auto operator<=>(const AttentionSpec&) const = default;

  int64_t rows() const { return batch * heads * length; }
  // "the gradient of attention of [32, 1024] tokens with 12 heads of 64"
  std::string ToString() const;
};

// All of the device, aligned to 16 bytes; what a pass reads it does not write. Null: what it does not have, and the lse of a forward pass
// whose reader there is none of.
struct AttentionTensors {
  const void* qkv = nullptr;
  void* y = nullptr;
  float* lse = nullptr;
  const void* dy = nullptr;
  void* dqkv = nullptr;
};

// Prepared once for a spec; one thread uses it, that of its device, which must outlive it. Neither way has a tensor of length x length in
// memory.
class AttentionPlan {
 public:
  virtual ~AttentionPlan() = default;
  virtual size_t workspace_bytes() const = 0;
  // Asynchronous. `workspace` is aligned to tensor::kAlignment.
  virtual absl::Status Run(const AttentionTensors& tensors, void* workspace) const = 0;
};
using AttentionPlanOrError = absl::StatusOr<std::unique_ptr<AttentionPlan>>;

// Whether PrepareAttention takes heads of this size: multiples of 16 up to 128.
bool AttentionFitsTensorCores(int64_t size);

// Where the choice of algorithms is the heuristic's, forward is cuDNN's on compute capability 9 and above, whose tensor cores our kernels
// do not use to the full, and backward ours, because cuDNN adds up dq in another order each time. Where it is measured, the faster of the
// two in either pass. Where cuDNN is not there, or knows no way, ours; the log says so, for each spec that it knows no way for. Errors:
// only what a card answers.
AttentionPlanOrError PrepareAttention(Device& device, const AttentionSpec& spec);

// The two ways. Errors of the first: FailedPrecondition, naming the library, where cuDNN or what it needs cannot be loaded; Unimplemented
// where it knows no way, or none without a tensor of length x length; Internal where the card fails.
AttentionPlanOrError PrepareCudnnAttention(Device& device, const AttentionSpec& spec);
std::unique_ptr<AttentionPlan> PrepareTensorCoreAttention(Device& device, const AttentionSpec& spec);

// The kernel of an op `attention` or `attention_grad` whose tensors are those of a plan.
std::unique_ptr<Kernel> MakePlannedAttention(PreparedOp op, Device& device, AttentionPass pass, std::unique_ptr<AttentionPlan> plan);

}  // namespace fusionllm::kernels::cuda
