// The seam between planning and compression: what a codec would make of the traffic of links. The scheduler knows no codec, only this.
//
// Implementations are pure and thread-safe. The adapter of the compression library implements it for real jobs; ExactPolicy sends
// everything as it is; CodecLevelPolicy is a plain table, enough for tests and for what-if studies.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lib/opdag/activation_kind.h"

namespace fusionllm::scheduler {

// A float activation with a gradient of the same type that comes back.
struct LossyTensor {
  int64_t bytes = 0;
  int64_t bytes_of_element = 4;
  opdag::ActivationKind kind = opdag::ActivationKind::kHidden;
};

// What one pair of stages exchanges per micro-batch, and over what.
struct LinkTraffic {
  std::vector<LossyTensor> lossy_tensors;
  int64_t forward_bytes = 0;           // their sum
  int64_t backward_bytes = 0;          // of the gradients
  int64_t forward_lossless_bytes = 0;  // labels, masks, activations without a gradient
  // Rates this pair can count on, its share of shared resources included; > 0.
  double forward_bytes_per_s = 0;
  double backward_bytes_per_s = 0;
  double forward_latency_s = 0;
  double backward_latency_s = 0;
};

struct LinkCodec {
  std::string codec = "fp32";  // text for the plan; fp32: exact
  double ratio = 1;            // dense bytes / wire bytes of the lossy part, both directions together
  int64_t forward_wire_bytes = 0;
  int64_t backward_wire_bytes = 0;
  double loss_cost = 0;                       // expected increase of the loss, nats per target; 0: exact
  std::shared_ptr<const std::string> reason;  // why this codec, in a sentence; null: nothing to say. Shared: a search copies choices often
  // Seconds per micro-batch on a device with time_scale 1: the producer's stage encodes activations and decodes gradients, the
  // consumer's the other way round.
  double producer_forward_s = 0, consumer_forward_s = 0;
  double producer_backward_s = 0, consumer_backward_s = 0;
};

class LinkCodecPolicy {
 public:
  virtual ~LinkCodecPolicy() = default;
  // One choice for each link: the least lossy that hides it behind target_s (the largest stage time per micro-batch, forward + backward;
  // each direction has a wire of its own), or the strongest allowed when none does. `codecs` has the size of `links` and arbitrary
  // contents.
  virtual void Choose(std::span<const LinkTraffic> links, double target_s, std::span<LinkCodec> codecs) const = 0;
  // The most that Choose may shrink a link, for search heuristics; >= 1.
  virtual double MaxRatio() const = 0;
  // No direction of a link is ever shrunk by more, for bounds; >= 1.
  virtual double MaxDirectionRatio() const { return MaxRatio(); }
};

class ExactPolicy final : public LinkCodecPolicy {
 public:
  void Choose(std::span<const LinkTraffic> links, double target_s, std::span<LinkCodec> codecs) const override;
  double MaxRatio() const override { return 1; }
};

// One of the levels from exact to coarse.
struct CodecLevel {
  std::string name;
  double forward_ratio = 1;  // dense / wire
  double backward_ratio = 1;
  double loss_cost = 0;
};

// Takes, link by link, the first level whose transfer time hides behind the target in both directions, else the last. Levels in order of
// loss; without any: exact.
class CodecLevelPolicy final : public LinkCodecPolicy {
 public:
  explicit CodecLevelPolicy(std::vector<CodecLevel> levels) : levels_(std::move(levels)) {}
  void Choose(std::span<const LinkTraffic> links, double target_s, std::span<LinkCodec> codecs) const override;
  double MaxRatio() const override;

 private:
  LinkCodec ChooseOne(const LinkTraffic& traffic, double target_s) const;
  std::vector<CodecLevel> levels_;
};

}  // namespace fusionllm::scheduler
