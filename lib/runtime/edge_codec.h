// Turns the tensors of cut edges into message payloads and back.
//
// One object per stage. It keeps, for each micro-batch under way, what the backward message of an edge needs from its forward message
// (the choice of a top-k codec), on both ends. Not thread-safe: used by the stage's thread.
#pragma once

#include <map>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/compression/spec.h"
#include "lib/runtime/message.h"
#include "lib/runtime/stage_program.h"
#include "lib/tensor/tensor.h"

namespace fusionllm::runtime {

class EdgeCodec {
 public:
  virtual ~EdgeCodec() = default;
  // `slot` tells micro-batches under way apart. Errors: InvalidArgument (a lossy codec met a value that is not finite, naming the index).
  virtual absl::StatusOr<Payload> Encode(const CutEdge& edge, int slot, tensor::ConstTensorView value) = 0;
  // Errors: InvalidArgument when the payload does not decode to out.type; the payload is untrusted.
  virtual absl::Status Decode(const CutEdge& edge, int slot, const Payload& payload, tensor::TensorView out) = 0;
};

using EdgeCodecs = std::unique_ptr<EdgeCodec>;

// The bytes of the tensor, little-endian, as they are.
EdgeCodecs ExactEdgeCodec();

// By (stage that makes the activation, stage that reads it). A gradient follows the spec of its activation's pair.
using LinkCodecs = std::map<std::pair<int, int>, compression::CodecSpec>;

// lib/compression's messages for the edges of `stage`: floats by the link's spec (exact where it has none), integers without loss.
EdgeCodecs CompressedEdgeCodec(int stage, LinkCodecs links);

}  // namespace fusionllm::runtime
