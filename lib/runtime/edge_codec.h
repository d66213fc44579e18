// Turns the tensors of cut edges into message payloads and back.
//
// One object per stage. It keeps, for each micro-batch under way, what the backward message of an edge needs from its forward message
// (the choice of a top-k codec), on both ends. Not thread-safe: used by the stage's thread.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/base/mutex.h"
#include "lib/compression/codec_guard.h"
#include "lib/compression/spec.h"
#include "lib/compression/tensor_codec.h"
#include "lib/kernels/backend.h"
#include "lib/opdag/activation_kind.h"
#include "lib/runtime/message.h"
#include "lib/runtime/stage_program.h"
#include "lib/tensor/tensor.h"

namespace fusionllm::runtime {

// What the guard of a sender found, and did, before the message left.
struct CodecBackoff {
  opdag::ValueId of = opdag::kNone;  // the forward value
  bool gradient = false;             // of it
  opdag::ActivationKind kind = opdag::ActivationKind::kHidden;
  compression::CodecSpec from, to;  // equal: nothing was done
  double relative_error = 0;        // with `from`
  double cosine = 1;
  double limit = 0;            // of the relative error of `from`
  double remaining_error = 0;  // with `to`
};

// What became of the float tensors that training sent to one stage.
struct LinkCompression {
  double ratio = 1;  // dense bytes over encoded ones; of a bf16 tensor the dense ones are 2 for each value
  // Every so often a message is decoded again and compared. The figures are those of the last comparison of each edge, taken together; with
  // error feedback the original is the tensor, not the tensor corrected; of a top-k edge's gradient what the forward's choice lets through.
  int64_t compared_messages = 0;
  double relative_error = 0;           // norm of original - decoded over norm of original
  double cosine = 1;                   // between original and decoded
  double residual_norm = 0;            // of original - decoded
  std::vector<CodecBackoff> backoffs;  // in their order
};

class EdgeCodec {
 public:
  virtual ~EdgeCodec() = default;
  // Where the tensors live that Encode and Decode take: the host's memory, or that of the stage's back end.
  virtual tensor::Memory& memory() const { return tensor::HostMemory(); }
  // `slot` tells micro-batches under way apart. `training` false: a message of an evaluation, which leaves no trace in those of training.
  // Errors: InvalidArgument (a lossy codec met a value that is not finite, naming the index).
  virtual absl::StatusOr<Payload> Encode(const CutEdge& edge, int slot, tensor::ConstTensorView value, bool training) = 0;
  // As Encode, but does not wait for a device that encodes: `value` may change in the order of its kernels. Another thread may finish the
  // message, which must go before the codec.
  virtual absl::StatusOr<std::unique_ptr<compression::PendingMessage>> StartEncode(const CutEdge& edge, int slot,
                                                                                   tensor::ConstTensorView value, bool training);
  // Errors: InvalidArgument when the payload does not decode to out.type; the payload is untrusted.
  virtual absl::Status Decode(const CutEdge& edge, int slot, const Payload& payload, tensor::TensorView out) = 0;

  // What error feedback keeps of a forward edge between messages: belongs to the checkpoint. Empty until the first message; null: the edge
  // has none. Where memory() is a device's it shows what was there at the last PullResiduals, and what is written to it counts after
  // PushResiduals.
  virtual std::vector<float>* Residual(const CutEdge& edge) { return nullptr; }
  virtual absl::Status PullResiduals() { return absl::OkStatus(); }
  virtual absl::Status PushResiduals() { return absl::OkStatus(); }
  // By receiving stage, for those that floats were sent to.
  virtual std::map<int, LinkCompression> Compression() const { return {}; }
};

using EdgeCodecPtr = std::unique_ptr<EdgeCodec>;

// The bytes of the tensor, little-endian, as they are.
EdgeCodecPtr ExactEdgeCodec();

// By (stage that makes the activation, stage that reads it). A gradient follows the message that brought its activation.
using LinkCodecs = std::map<std::pair<int, int>, compression::CodecSpec>;

// By name of a parameter that several stages use: what their gradients of it travel as at the end of a step (step_coordinator.h). Never
// top-k; a lossy one always has error feedback.
using TiedCodecs = std::map<std::string, compression::CodecSpec>;

// Of 64 messages of an edge one is compared with its original. That takes four times as long as encoding it (codec_bench): less than a
// hundredth of a device's time wherever encoding takes less than a seventh of it.
inline constexpr int64_t kComparisonPeriod = 64;

// And its first few: what a codec costs is most at the beginning of a run.
inline constexpr int64_t kFirstComparisons = 8;

// The most that the edges of a stage may use from now on, as ordered while it runs. Thread-safe.
class CodecLimit {
 public:
  void Set(const compression::CodecSpec& limit) {
    const base::MutexLock lock(mutex_);
    limit_ = limit;
  }
  std::optional<compression::CodecSpec> Get() const {
    const base::MutexLock lock(mutex_);
    return limit_;
  }

 private:
  mutable base::Mutex mutex_;
  std::optional<compression::CodecSpec> limit_ ABSL_GUARDED_BY(mutex_);
};

// Each sender watches its own edges. Where a message that is compared loses more than its kind of value bears for what its link may cost
// (compression::MaxRelativeError), it is not sent: the sender tries less aggressive codecs on it and goes on with the first that loses
// little enough. Messages describe themselves and a gradient follows the message that it answers, so no other stage need know; the same
// tensors lead to the same codecs.
struct GuardSettings {
  compression::GuardMode mode = compression::GuardMode::kNone;
  std::vector<opdag::ActivationKind> kinds;  // by value id; what it has none of is kHidden
  // What the run has found out before: of a forward value (false), or its gradient (true), the most that its messages bear.
  std::map<std::pair<opdag::ValueId, bool>, compression::CodecSpec> limits;
  // What a link may cost in nats, as in LinkCodecs; compression::kGuardLossBudget where it has none.
  std::map<std::pair<int, int>, double> link_losses;
  std::shared_ptr<const CodecLimit> limit;  // null: none
};

// lib/compression's messages for the edges of `stage`: floats by the link's spec (exact where it has none) as far as their kind may take it
// (compression::AllowedCodec), integers without loss. `kinds`: autodiff::ActivationKindsOf, the same on both ends; values beyond its end
// may take anything. Lossy codecs take bf16 tensors widened, where they live, and what they decode is rounded to bf16; residuals of error
// feedback are fp32 as ever. tensor_codec: TensorCodecFor's, or the host's where it is null.
EdgeCodecPtr CompressedEdgeCodec(int stage, LinkCodecs links, int64_t comparison_period = kComparisonPeriod,
                                 std::unique_ptr<compression::TensorCodec> tensor_codec = nullptr,
                                 std::vector<opdag::ActivationKind> kinds = {}, GuardSettings guard = {});

// The codec for tensors in the memory of `backend`, which must outlive it: on its device where it has one that codes, else the host's, to
// which the runtime then brings the tensors.
std::unique_ptr<compression::TensorCodec> TensorCodecFor(kernels::Backend& backend);

}  // namespace fusionllm::runtime
