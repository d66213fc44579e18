#include "lib/runtime/edge_codec.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"
#include "lib/base/status_macros.h"

namespace fusionllm::runtime {
namespace {

class Exact : public EdgeCodec {
 public:
  absl::StatusOr<Payload> Encode(const CutEdge& edge, int slot, tensor::ConstTensorView value, bool training) override {
    const auto bytes = value.bytes();
    return Payload(bytes.begin(), bytes.end());
  }

  absl::Status Decode(const CutEdge& edge, int slot, const Payload& payload, tensor::TensorView out) override {
    if (payload.size() != out.type.bytes()) {
      return absl::InvalidArgumentError(absl::StrFormat("value %d from stage %d: %d bytes, expected %d for %s", edge.value, edge.peer,
                                                        payload.size(), out.type.bytes(), out.type.ToString()));
    }
    std::memcpy(out.data, payload.data(), payload.size());
    return absl::OkStatus();
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<compression::PendingMessage>> EdgeCodec::StartEncode(const CutEdge& edge, int slot,
                                                                                    tensor::ConstTensorView value, bool training) {
  FUSIONLLM_ASSIGN_OR_RETURN(Payload payload, Encode(edge, slot, value, training));
  return compression::CompletedMessage(std::move(payload));
}

EdgeCodecPtr ExactEdgeCodec() { return std::make_unique<Exact>(); }

}  // namespace fusionllm::runtime
